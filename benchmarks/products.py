"""Measures the target tokens a second that training would have if a step were nothing but its products of matrices.

python benchmarks/products.py                                        # T1 T2
python benchmarks/training.py --peer "its products alone=python benchmarks/products.py --work {work}"

All products of forward, and the gradients of both sides of each, made as a step on a CPU makes them: in one program of
XLA's, but for the gradients of kernels, which TensorFlow makes. These have gaps between rows where a step has them;
here each has its own, where layers of a step that share a left side share its copy. No layer waits for another one.
What the step takes longer is the rest of it; what these products do not reach of the machine is in both.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from keras_transformer import Transformer
from keras_transformer.data.prefetch import keep_freed_memory
from keras_transformer.fast.gradients import kernel_product, key_product, value_product

# Afterwards TensorFlow, which keras_transformer lets use oneDNN.
# isort: split
import measure
import tensorflow as tf
import works


class Product(NamedTuple):
    """left x right; the gradients of both are two products more."""

    function: Callable
    left: tf.Tensor
    right: tf.Tensor
    right_is_kernel: bool = False  # its gradient is made by TensorFlow


def forward_products(work, sizes) -> Iterator[Product]:
    """Every product of a forward pass, with rows that are random numbers."""
    batch, length = work.batch, work.target_length
    assert work.source_length == length, "encoder and decoder have equally many rows here"
    model = Transformer(**sizes)
    config, heads = model.config, (batch, model.config.num_heads)
    for kernel in (v.value for v in model.trainable_variables if v.path.endswith("/kernel")):
        yield Product(tf.matmul, normal(batch * length, kernel.shape[0]), kernel, right_is_kernel=True)
    for _ in range(config.num_encoder_layers + 2 * config.num_decoder_layers):
        yield Product(key_product, normal(*heads, length, config.key_width), normal(*heads, length, config.key_width))
        yield Product(value_product, normal(*heads, length, length), normal(*heads, length, config.value_width))
    vocabulary, rows = model.output_embedding.embeddings.value, normal(batch * length, config.d_model)
    yield Product(partial(tf.matmul, transpose_b=True), rows, vocabulary, right_is_kernel=True)


def normal(*shape):
    return tf.random.normal(shape)


def passes(products):
    """XLA's program. -> results, and their gradients by the left sides, and by the right ones that are no kernels

    The results stand for their own gradients.
    """

    @tf.function(jit_compile=True, autograph=False)
    def both_passes():
        operands = [(tf.identity(product.left), tf.identity(product.right)) for product in products]
        with tf.GradientTape() as tape:
            tape.watch(operands)
            results = [product.function(*pair) for product, pair in zip(products, operands, strict=True)]
        sources = [pair[: 2 - product.right_is_kernel] for product, pair in zip(products, operands, strict=True)]
        return results, tape.gradient(results, sources, output_gradients=results)

    return both_passes


def program(products):
    """The function that makes them all. -> results, their gradients by both sides"""
    both_passes = passes(products)

    @tf.function(autograph=False)
    def step():
        results, gradients = both_passes()
        gradients = list(gradients)
        for place, product in enumerate(products):
            if product.right_is_kernel:
                gradients[place] = (*gradients[place], of_kernel(product, results[place]))
        return results, gradients

    return step


def of_kernel(product, dy):
    """The gradient by the right side of a product whose result has the gradient `dy`."""
    transposed = product.function is not tf.matmul
    left, right = (dy, product.left) if transposed else (product.left, dy)
    return kernel_product(left, right)


def steps(work, sizes):
    """A function that makes the products of so many steps."""
    keep_freed_memory()  # all of them are results, 1.1 GB of T2, which a step would have to take up anew
    step = program(list(forward_products(work, sizes)))

    def make(number):
        for _ in range(number):
            results, _ = step()
        results[-1][0, 0].numpy()

    return make


def main():
    parser = measure.command_line(__doc__)
    measure.add_works(parser, works.names(works.Training))
    options = parser.parse_args()
    for name in options.work:
        run(name, options)


def run(name, options):
    work = works.WORKS[name]
    make = steps(work, works.MODELS[work.model])
    first_step = measure.timed(lambda: make(1))

    def repeat():
        return work.steps * work.amount / measure.timed(lambda: make(work.steps))

    measure.measure(name, f"{work.unit}/s", repeat, options, first_step_s=round(first_step, 2))


if __name__ == "__main__":
    main()
