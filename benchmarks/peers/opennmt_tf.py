"""The works by OpenNMT-tf: a Transformer of the same sizes with random weights, float32, two threads.

    python3.11 -m venv onmt && onmt/bin/pip install OpenNMT-tf==2.32.0 tensorflow==2.13.1
    python benchmarks/training.py --peer "OpenNMT-tf=onmt/bin/python benchmarks/peers/opennmt_tf.py {work}"
    python benchmarks/decoding.py --how saved_model --work D1 D2 --peer "OpenNMT-tf=... opennmt_tf.py {work}"

Training has the dropout of ours, none of attention weights and inside the feed-forward networks, unless it is given
--dropout-everywhere. Its SavedModel takes pieces as strings.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure
import numpy as np
import opennmt
import tensorflow as tf
import works

DROPOUT = 0.1
NUM_BATCHES = 8


def transformer(work, folder, everywhere=False):
    """The model, and its pieces as strings; the library adds one for what is unknown."""
    sizes = works.MODELS[work.model]
    pieces = ["<blank>", "<s>", "</s>", *(f"p{i}" for i in range(3, sizes["vocab_size"] - 1))]
    vocabulary = Path(folder, "pieces.txt")
    vocabulary.write_text("\n".join(pieces) + "\n")
    model = opennmt.models.Transformer(
        num_layers=(sizes["num_encoder_layers"], sizes["num_decoder_layers"]),
        num_units=sizes["d_model"],
        num_heads=sizes["num_heads"],
        ffn_inner_dim=sizes["d_ff"],
        dropout=DROPOUT,
        attention_dropout=DROPOUT if everywhere else 0,
        ffn_dropout=DROPOUT if everywhere else 0,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
        pre_norm=False,
    )
    params = {"label_smoothing": 0.1, "average_loss_in_time": True}
    if isinstance(work, works.Decoding):
        lengths = dict(minimum_decoding_length=work.num_steps, maximum_decoding_length=work.num_steps)
        params |= dict(beam_width=work.beam_width, length_penalty=0.6 if work.beam_width > 1 else 0, **lengths)
    model.initialize({f"{side}_vocabulary": str(vocabulary) for side in ("source", "target")}, params=params)
    model.create_variables()
    return model, np.array([*pieces, "<unk>"])


def training(work, everywhere):
    """-> a function that makes so many updates"""
    with tempfile.TemporaryDirectory() as folder:
        model, _ = transformer(work, folder, everywhere)
    optimizer = tf.keras.optimizers.legacy.Adam(1e-4, beta_1=0.9, beta_2=0.98, epsilon=1e-9)

    def features(ids, **more):
        return {"ids": tf.constant(ids), "length": tf.fill([work.batch], ids.shape[1]), **more}

    def batch(source, target):
        shifted = np.pad(target, [[0, 0], [1, 0]], constant_values=1)[:, :-1]  # 1 begins a sentence
        return features(source), features(shifted, ids_out=tf.constant(target))

    batches = [batch(*pair) for pair in works.pairs(work, NUM_BATCHES, works.MODELS[work.model]["vocab_size"] - 1)]

    @tf.function
    def step(source, target):
        loss, gradients = model.compute_gradients(source, target, optimizer)
        optimizer.apply_gradients(zip(gradients, model.trainable_weights))  # noqa: B905
        return loss

    def updates(number):
        for i in range(number):
            loss = step(*batches[i % NUM_BATCHES])
        return float(loss)

    return updates


def decoding(work):
    """-> a function that translates a batch, by an export that is loaded again"""
    with tempfile.TemporaryDirectory() as folder:
        model, pieces = transformer(work, folder)
        model.export(str(Path(folder, "export")))
        loaded = tf.saved_model.load(str(Path(folder, "export")))
    signature = loaded.signatures["serving_default"]

    def call(ids):
        found = signature(tokens=tf.constant(pieces[ids]), length=tf.fill([len(ids)], ids.shape[1]))
        found["tokens"].numpy()
        return found["length"].numpy(), loaded  # which the signature does not keep

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=works.WORKS)
    parser.add_argument("--dropout-everywhere", action="store_true", help="as the library has it by itself")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(measure.cores())
    work = works.WORKS[options.work]
    if isinstance(work, works.Training):
        updates = training(work, options.dropout_everywhere)

        def repeat():
            return work.steps * work.amount / measure.timed(lambda: updates(work.steps))
    else:
        call = decoding(work)
        batches = works.sources(work, work.calls, works.MODELS[work.model]["vocab_size"] - 1)
        assert (call(batches[0])[0] == work.num_steps).all(), "of another length"

        def repeat():
            return len(batches) * work.amount / measure.timed(lambda: [call(ids) for ids in batches])

    repeat()
    measure.answer(repeat)


if __name__ == "__main__":
    main()
