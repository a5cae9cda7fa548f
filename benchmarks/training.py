"""Target tokens a second of training: the step that `fit` drives, as a run of train_keras.py has it.

python benchmarks/training.py                                        # T1 T2, compiled by XLA
python benchmarks/training.py --work T1 --no-xla
python benchmarks/training.py --work T1 --peer "OpenNMT-tf=.../python onmt_tf.py --work {work}"
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import numpy as np
import tensorflow as tf
import works

from keras_transformer import Transformer
from keras_transformer.config import TrainConfig
from keras_transformer.data.batches import Batch, Inputs
from keras_transformer.training.step import Trainee

NUM_BATCHES = 8  # that are there in memory and come again and again


def batch(source_ids, labels):
    target_ids = np.pad(labels, [[0, 0], [1, 0]], constant_values=2)[:, :-1]  # 2 begins a sentence
    return Batch(Inputs(source_ids, target_ids), labels, np.ones(labels.shape, np.float32))


def endless(work):
    """The batches of the work as an iterator of tensors."""
    batches = [batch(*pair) for pair in works.pairs(work, NUM_BATCHES, works.MODELS[work.model]["vocab_size"])]
    stacked = tf.nest.map_structure(lambda *parts: np.stack(parts), *batches)
    return iter(tf.data.Dataset.from_tensor_slices(stacked).cache().repeat().prefetch(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, work in works.WORKS.items() if isinstance(work, works.Training)]
    parser.add_argument("--work", nargs="+", choices=names, default=names)
    parser.add_argument("--no-xla", action="store_true")
    measure.add_arguments(parser)
    options = parser.parse_args()
    for name in options.work:
        run(name, options)


def run(name, options):
    work = works.WORKS[name]
    trainee = Trainee(Transformer(**works.MODELS[work.model]), TrainConfig(xla=not options.no_xla))
    trainee.make_train_function()
    batches = endless(work)

    def steps(number):
        for _ in range(number):
            logs = trainee.train_function(batches)
        return float(logs["loss"])  # waits for the last one

    def repeat():
        return work.steps * work.batch * work.target_length / measure.timed(lambda: steps(work.steps))

    about = {"xla": not options.no_xla, "first_step_s": round(measure.timed(lambda: steps(1)), 2)}
    measure.measure(name, "target tokens/s", repeat, options, **about)


if __name__ == "__main__":
    main()
