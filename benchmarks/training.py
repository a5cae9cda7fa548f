"""Target tokens a second of training: the step that `fit` drives, as a run of train_keras.py has it.

python benchmarks/training.py                                        # T1 T2, compiled by XLA
python benchmarks/training.py --work T1 --no-xla
python benchmarks/training.py --work T1 --peer "OpenNMT-tf=onmt/bin/python benchmarks/peers/opennmt_tf.py {work}"
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from keras_transformer import Transformer
from keras_transformer.config import TrainConfig
from keras_transformer.data.batches import shifted
from keras_transformer.gpu import multiply_in_float32
from keras_transformer.training.step import Trainee
from keras_transformer.training.strategy import distribute, make_strategy

# Afterwards TensorFlow, which keras_transformer lets use oneDNN.
# isort: split
import measure
import numpy as np
import tensorflow as tf
import works

NUM_BATCHES = 8  # that are there in memory and come again and again


def dataset(work):
    """The batches of the work without end."""
    batches = [shifted(*pair) for pair in works.pairs(work, NUM_BATCHES, works.MODELS[work.model]["vocab_size"])]
    stacked = tf.nest.map_structure(lambda *parts: np.stack(parts), *batches)
    return tf.data.Dataset.from_tensor_slices(stacked).cache().repeat().prefetch(2)


def updates(work, xla, strategy="one_device"):
    """A function that makes so many updates of a new model and waits for the last one."""
    strategy = make_strategy(strategy)
    multiply_in_float32()
    with strategy.scope():
        trainee = Trainee(Transformer(**works.MODELS[work.model]), TrainConfig(xla=xla))
    trainee.make_train_function()
    batches = iter(distribute(dataset(work), strategy))

    def update(number):
        for _ in range(number):
            logs = trainee.train_function(batches)
        return float(logs["loss"])

    return update


def main():
    parser = measure.command_line(__doc__)
    measure.add_works(parser, works.names(works.Training))
    parser.add_argument("--no-xla", action="store_true")
    options = parser.parse_args()
    for name in options.work:
        run(name, options)


def run(name, options):
    work = works.WORKS[name]
    update = updates(work, not options.no_xla)
    first_step = measure.timed(lambda: update(1))

    def repeat():
        return work.steps * work.amount / measure.timed(lambda: update(work.steps))

    about = {"xla": not options.no_xla, "first_step_s": round(first_step, 2)}
    measure.measure(name, f"{work.unit}/s", repeat, options, **about)


if __name__ == "__main__":
    main()
