"""How a layer multiplies: plainly, or in another way that a search or a training step has prepared for it.

A step of a search multiplies few rows by every kernel of the decoder, and its time goes into reading the kernels. In
their usual layout, libraries read a kernel for four rows at half the speed of the memory or less. So there are other
ways to multiply, each a `Product`, and a search prepares before its loop those that suit what runs it:

    left_product         here                  anywhere: a large vocabulary (V, D) as it lies, but as the left operand
    xla_products, ...    products_by_xla.py    in a program that XLA compiles
    summed_product, ...  products_in_graph.py  in a graph without XLA
    factor_product       gradients.py          in a training step: leaves the gradient of the kernel for later

Layers multiply by `product`, which is the plain product outside of `use_products`:

>>> with use_products(xla_products([layer])):
...     layer(x)
"""

import contextlib
import contextvars
import types
from collections.abc import Callable

import tensorflow as tf

LEFT_ROWS, LEFT_PARTS = 16, 4  # with more rows XLA is faster in its own way

Product = Callable[[tf.Tensor], tf.Tensor]  # (R, D) -> (R, N)

_products = contextvars.ContextVar("products", default=types.MappingProxyType({}))  # what is prepared, by layer


@contextlib.contextmanager
def use_products(products):
    """A context in which layers multiply by what is prepared for them, {layer: product}."""
    token = _products.set(products)
    try:
        yield
    finally:
        _products.reset(token)


def product(layer, rows):
    """rows x the layer's kernel, by its `Product` where one is prepared. (R, D) -> (R, N)"""
    return (prepared_for(layer) or plain_product(layer.cast_kernel(), layer.is_transposed))(rows)


def prepared_for(layer):
    """What `use_products` has for a layer, or None."""
    return _products.get().get(layer)


def plain_product(kernel, transposed=False):
    """Multiplies by the kernel in its usual layout. (D, N), or (N, D) if `transposed` -> Product"""
    return lambda rows: tf.matmul(rows, kernel, transpose_b=transposed)


def left_product(kernel):
    """Multiplies with the kernel on the left, for a loop of which it is not known what runs it. (V, D) -> Product

    This is for up to `LEFT_ROWS` rows. The kernel is read nearly twice as fast as the left operand of a batched
    product: otherwise libraries copy it into another order first. Unlike panels this takes no memory.
    """
    (size, width), plain = kernel.shape, plain_product(kernel, transposed=True)
    if size % LEFT_PARTS:
        return plain

    def left(rows):
        parts = tf.reshape(kernel, (LEFT_PARTS, size // LEFT_PARTS, width))
        y = tf.matmul(parts, tf.tile(rows[None], (LEFT_PARTS, 1, 1)), transpose_b=True)  # (LEFT_PARTS, V / ..., R)
        return tf.transpose(tf.reshape(y, (size, -1)))

    def multiply(rows):
        few = tf.shape(rows)[0] <= LEFT_ROWS
        return tf.cond(few, lambda: left(rows), lambda: plain(rows))

    return multiply
