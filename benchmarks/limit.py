"""Measures what this machine can do at most, and so the least time that each work must take: its floor.

python benchmarks/limit.py                                           # the limits, then the floors
python benchmarks/training.py --work T2 --peer "the limit=python benchmarks/limit.py --work {work}"    # the share of it

    product_numpy, product_tensorflow, product_xla     GFLOP a second of a large product of matrices, all threads
    read_1, read_all                                   GB a second of reading a large array, one thread and all
    T1 ... G1                                          milliseconds of a step or call, not to be undercut:

        floor = max(2 x multiply-adds / FLOP a second of the best product, bytes / bytes a second of all threads)

The multiply-adds are those of matrix products. The bytes are those of the weights alone, read once a step: what stays
in the processor's cache from step to step, as a small model may, can be read faster than that.
"""

import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_transformer  # noqa: F401

# Afterwards TensorFlow, which keras_transformer lets use oneDNN.
# isort: split
import measure
import numpy as np
import tensorflow as tf
import works


class Cost(NamedTuple):
    """Of a training step, or of a call of the search."""

    multiply_adds: int
    bytes: int


class Weights(NamedTuple):
    """Numbers in the matrices of a model. Biases and norms are left out, under 0.2 % of all."""

    encoder: int
    memory: int  # for the keys and values of the encoder's output
    decoder: int  # without these
    output: int  # the embeddings, as the last matrix


def weights(model):
    d, encoder_layers, decoder_layers = model["d_model"], model["num_encoder_layers"], model["num_decoder_layers"]
    feed_forward = 2 * d * model["d_ff"]
    return Weights(
        encoder=encoder_layers * (4 * d * d + feed_forward),  # query, key, value, output
        memory=decoder_layers * 2 * d * d,
        decoder=decoder_layers * (6 * d * d + feed_forward),  # four of self-attention, query and output of the other
        output=d * model["vocab_size"],
    )


def attention(model, layers, pairs):
    """Multiply-adds of so many pairs of a query and a key: their scores, and the sum of values."""
    return layers * pairs * 2 * model["d_model"]


def encoding(work, model):
    """Multiply-adds of the encoder's pass, and of the keys and values that the decoder makes of it."""
    w, length = weights(model), work.source_length
    products = work.batch * length * (w.encoder + w.memory)
    return products + attention(model, model["num_encoder_layers"], work.batch * length * length)


def training(work, model):
    """The cost of a step. Backward is two products for each of forward: gradients of its input and of its weights."""
    w, length = weights(model), work.target_length
    decoding = work.batch * length * (w.decoder + w.output)
    decoding += attention(model, model["num_decoder_layers"], work.batch * length * (length + work.source_length))
    adam = 7 * sum(w)  # reads weight, gradient and both moments, writes all but the gradient
    return Cost(3 * (encoding(work, model) + decoding), 4 * adam)


def decoding(work, model):
    """The cost of a call. The first step needs one beam a sentence, since all are the same."""
    w = weights(model)
    rows = [work.batch] + [work.batch * work.beam_width] * (work.num_steps - 1)
    pairs = sum(row * (past + work.source_length) for past, row in enumerate(rows, start=1))
    steps = sum(rows) * (w.decoder + w.output) + attention(model, model["num_decoder_layers"], pairs)
    read = w.encoder + w.memory + work.num_steps * (w.decoder + w.output)
    return Cost(encoding(work, model) + steps, 4 * read)


def cost(work):
    count = training if isinstance(work, works.Training) else decoding
    return count(work, works.MODELS[work.model])


def floors(work, limits):
    """Seconds that a step or call takes at least for its products, and for its reading."""
    multiply_adds, num_bytes = cost(work)
    gflops = max(rate for name, rate in limits.items() if name.startswith("product"))
    return 2e-9 * multiply_adds / gflops, 1e-9 * num_bytes / limits["read_all"]


def meter(size, mib):
    """A function that measures all the limits once. -> {name: GFLOP/s or GB/s}"""
    a, b = np.random.default_rng(0).random((2, size, size), np.float32)
    x, y = tf.constant(a), tf.constant(b)
    compiled = tf.function(tf.matmul, jit_compile=True, autograph=False)
    products = {
        "product_numpy": lambda: a @ b,
        "product_tensorflow": lambda: tf.matmul(x, y),
        "product_xla": lambda: compiled(x, y),
    }
    array = np.ones(mib * 2**17, np.int64)  # integers, which are added faster than read; zeros would be one page
    threads = ThreadPoolExecutor(measure.cores())
    parts = np.array_split(array, measure.cores())
    readings = {"read_1": array.sum, "read_all": lambda: list(threads.map(np.sum, parts))}

    def limits():
        found = {name: 2e-9 * size**3 / measure.timed(product) for name, product in products.items()}
        return found | {name: 1e-9 * array.nbytes / measure.timed(reading) for name, reading in readings.items()}

    limits()  # compiles
    return limits


def main():
    parser = measure.command_line(__doc__)
    parser.add_argument("--work", nargs="+", choices=works.WORKS, default=list(works.WORKS))
    parser.add_argument(
        "--size", type=measure.positive, default=2048, help="rows and columns of the matrices (%(default)s)"
    )
    parser.add_argument("--mib", type=measure.positive, default=1024, help="of the array (%(default)s)")
    options = parser.parse_args()
    limits = meter(options.size, options.mib)
    if os.environ.get(measure.PAIRED):
        work = works.WORKS[options.work[0]]
        return measure.answer(lambda: work.amount / max(floors(work, limits())))
    rounds = [limits() for _ in range(options.repeats)]
    for name in rounds[0]:
        unit = "GFLOP/s" if name.startswith("product") else "GB/s"
        measure.report({"work": name, "unit": unit, **measure.spread([found[name] for found in rounds])})
    for name in options.work:
        report(name, [floors(works.WORKS[name], found) for found in rounds])


def report(name, rounds):
    """The floor of a work by the limits of every round."""
    work = works.WORKS[name]
    floor = measure.spread([1000 * max(seconds) for seconds in rounds])
    products, reading = (1000 * statistics.median(side) for side in zip(*rounds, strict=True))
    gflop, gb = 2e-9 * cost(work).multiply_adds, 1e-9 * cost(work).bytes
    rate = 1000 * work.amount / floor["median"]
    about = {"gflop": gflop, "products_ms": products, "gb": gb, "reading_ms": reading, "rate": rate}
    note = f"{gflop:,.1f} GFLOP {products:,.0f} ms, {gb:.2f} GB {reading:,.0f} ms: at most {rate:,.1f} {work.unit}/s"
    about = {key: round(value, 4) for key, value in about.items()} | {"rate_unit": f"{work.unit}/s"}
    measure.report({"work": name, "unit": "ms", **floor, **about}, note)


if __name__ == "__main__":
    main()
