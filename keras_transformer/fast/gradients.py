"""Faster ways to make gradients that a program compiled by XLA for a CPU makes slowly.

    on_every_row                 of a vector that is added to every row: a sum over rows, as a product with ones
    key_product, value_product   of keys and values: what XLA would rearrange number by number is transposed first
    factored_gradients           of all kernels: not made by XLA at all, but handed over as the factors of a product

The last one is for a training step that does more than run its XLA program. The gradient of a kernel is rows^T dy,
which TensorFlow multiplies at 390 to 450 GFLOP/s and XLA at 200 to 370 (docs/log.md, on an AMD EPYC). On a GPU that has
to add in the same order every time, an XLA program adds the rows of embeddings one by one; TensorFlow sorts them first.
In both cases layers multiply by products that leave out the gradient of their kernel:

    left_out = []
    with tf.GradientTape() as tape, use_products({layer: factor_product(layer, left_out)}):     # XLA
        loss = ...
    factored = factored_gradients(tape, loss, variables, left_out)
    ...
    gradients = multiplied(factored, variables)                                                 # TensorFlow
"""

import functools
from typing import NamedTuple

import keras
import tensorflow as tf
from tensorflow.python.eager import record

from keras_transformer.fast.products import Product
from keras_transformer.fast.strides import with_gap
from keras_transformer.fast.xla import barrier, by_xla_on_cpu, on_gpu
from keras_transformer.processor import AVX2_ALONE


def with_gradient(function):
    """Gives a function its own gradient on a tape: it has to return its outputs, and a function from dy to gradients.

    Unlike this, `tf.custom_gradient` keeps every gradient of a graph registered for as long as the process lives, with
    the graph and the weights that the graph has captured, adds operations, and saves the gradient with an exported
    model. Only the tape knows this gradient; differentiating the graph's operations gives those operations' gradients.
    """

    @functools.wraps(function)
    def recorded(*inputs):
        if any(isinstance(x, keras.KerasTensor) for x in inputs):  # symbols have no gradients
            return function(*inputs)[0]
        inputs = [tf.convert_to_tensor(x) for x in inputs]  # variables are read where the tape sees it
        with record.stop_recording():
            outputs, gradient = function(*inputs)
        record.record_operation(function.__name__, tf.nest.flatten(outputs), inputs, gradient)
        return outputs

    return recorded


def on_every_row(vector, x):
    """`vector`, to be used with every row of `x`; repeated where XLA compiles for a CPU. (D,), (..., D) -> (..., D)

    There the gradient, a sum over all rows, is a product with ones: XLA's own sum takes 4 ms for (32, 32, 512), the
    product 0.1 ms. There are eight rows of ones, because XLA would turn a product with one row into a loop again. On a
    GPU, where sums are fast, it would copy the gradients of all vectors into one array to make all the products at
    once. Without XLA the repeated vectors would be written out.
    """
    if not by_xla_on_cpu():
        return vector

    @with_gradient
    def broadcast(vector):
        def gradient(dy):
            rows = tf.reshape(dy, (-1, dy.shape[-1]))
            return [tf.matmul(tf.ones((8, tf.shape(rows)[0]), rows.dtype), rows)[0]]

        return tf.broadcast_to(vector, tf.shape(x)), gradient

    return broadcast(vector)


def key_product(query, key):
    """Q K^T of every head. (B, H, T, K), (B, H, S, K) -> (B, H, T, S)

    Keys that all sentences share, (1, H, S, K), have a gradient only if their shape says so.
    """
    if not by_xla_on_cpu() or query.shape[:2] != key.shape[:2]:
        return tf.matmul(query, key, transpose_b=True)

    @with_gradient
    def multiply(query, key):
        def gradient(dy):
            return tf.matmul(dy, key), tf.matmul(_heads_turned(dy), query)

        return tf.matmul(query, key, transpose_b=True), gradient

    return multiply(query, key)


def value_product(weights, value):
    """Sums of the values of every head. (B, H, T, S), (B, H, S, K) -> (B, H, T, K); shared ones as for `key_product`"""
    if not by_xla_on_cpu() or weights.shape[:2] != value.shape[:2]:
        return tf.matmul(weights, value)

    @with_gradient
    def multiply(weights, value):
        def gradient(dy):
            return tf.matmul(dy, value, transpose_b=True), tf.matmul(_heads_turned(weights), dy)

        return tf.matmul(weights, value), gradient

    return multiply(weights, value)


class Factors(NamedTuple):
    """The factors of a gradient, which is left^T right."""

    left: tf.Tensor  # (R, D)
    right: tf.Tensor  # (R, N)


class FactoredGradients(NamedTuple):
    """Gradients by the places of their variables, some of them as factors.

    A left factor that several products share, as those of queries, keys and values do, is held once: XLA would copy it
    for each. Where a variable has several products, its gradient is their sum.
    """

    made: dict[int, tf.Tensor | tf.IndexedSlices]  # by the tape; of embeddings perhaps only rows
    lefts: list[tf.Tensor]  # (R, D) each
    rights: dict[int, dict[int, list[tf.Tensor]]]  # for every variable, by the places of `lefts`

    def factors(self):
        """The products that are still to be made and added to `made`. -> [(place of the variable, Factors)]"""
        return [
            (place, Factors(self.lefts[place_of_left], right))
            for place, by_left in self.rights.items()
            for place_of_left, rights in by_left.items()
            for right in rights
        ]


def factor_product(layer, left_out) -> Product:
    """Multiplies by the layer's kernel, whose gradient is not made: `left_out` gets its factors."""
    transposed = layer.is_transposed

    @with_gradient
    def multiply(rows, kernel):
        def gradient(dy):
            left_out.append((layer.kernel, Factors(dy, rows) if transposed else Factors(rows, dy)))
            return tf.matmul(dy, kernel, transpose_b=not transposed), None

        return tf.matmul(rows, kernel, transpose_b=transposed), gradient

    kernel = layer.cast_kernel()
    return lambda rows: multiply(rows, kernel)


def factored_gradients(tape, loss, variables, left_out) -> FactoredGradients:
    """The gradients by `variables`; those that products have noted in `left_out` stay factors."""
    by_variable = tape.gradient(loss, [variable.value for variable in variables])
    places, lefts, rights = {id(variable): place for place, variable in enumerate(variables)}, {}, {}
    for variable, factors in left_out:
        place_of_left, _ = lefts.setdefault(_origin(factors.left), (len(lefts), factors.left))
        rights.setdefault(places[id(variable)], {}).setdefault(place_of_left, []).append(factors.right)
    made = {place: x for place, x in enumerate(by_variable) if x is not None}
    made = made if left_out else {place: tf.convert_to_tensor(x) for place, x in made.items()}
    return FactoredGradients(made, [left for _, left in lefts.values()], rights)


def _origin(rows):
    """The tensor that `rows` are a reshape of, and their width: equal where several layers reshape the same tensor.

    Outside of a graph that tensor is not known, and the rows themselves stand for it.
    """
    is_reshape = tf.is_symbolic_tensor(rows) and rows.op.type == "Reshape"
    return (rows.op.inputs[0] if is_reshape else rows).ref(), rows.shape[-1]


def multiplied(gradients: FactoredGradients, variables):
    """The gradients of all variables, in the order of `variables`; makes the products that were left out."""
    pairs = gradients.factors()
    parts = {place: [] for place in gradients.made.keys() | gradients.rights.keys()}
    for (place, _), y in zip(pairs, _products([factors for _, factors in pairs]), strict=True):
        parts[place].append(tf.cast(y, variables[place].dtype))
    without = [variable.path for place, variable in enumerate(variables) if place not in parts]
    assert not without, f"Every variable has a gradient. Received none for: {', '.join(without)}."
    return [_sum(gradients.made.get(place), parts[place], v.shape) for place, v in enumerate(variables)]


def _products(pairs):
    """left^T right of all pairs. The largest is made first and alone.

    TensorFlow divides it among all threads. Beside the others, one of its parts might begin late and end long after
    everything else. (This was measured with two threads.)
    """
    largest = max(pairs, key=lambda factors: factors.left.shape[-1] * factors.right.shape[-1], default=None)
    first = [kernel_product(*largest)] if largest else []
    with tf.control_dependencies(first):
        return [first[0] if factors is largest else kernel_product(*factors) for factors in pairs]


def kernel_product(left, right):
    """left^T right, as TensorFlow with oneDNN makes it fastest (docs/log.md).

    On a processor with AVX2 alone, a small product's factors get gaps between their rows. Any other product that is
    taller than wide is made as a batch of one.
    """
    height, width = left.shape[-1], right.shape[-1]
    if AVX2_ALONE and not on_gpu() and _is_small(height, width):
        return tf.matmul(with_gap(left), with_gap(right), transpose_a=True)[:height, :width]
    if height <= width:
        return tf.matmul(left, right, transpose_a=True)
    return tf.matmul(left[None], right[None], transpose_a=True)[0]


def _is_small(height, width):
    """Whether oneDNN reads the factors as they lie: 512 x 512 and 256 x 2,048 gain by gaps, 512 x 1,024 does not."""
    return min(height, width) <= 256 or max(height, width) <= 512


def _sum(made, products, shape):
    """The sum of `made` and all products. No product may be used elsewhere or be a constant: it may be written to.
    (A product may be part of a larger one, which nobody else reads.)

    The row of an id that does not exist, which only a broken batch has, is added to another id's, as `InplaceAdd` does.
    """
    if not isinstance(made, tf.IndexedSlices):
        return tf.add_n(products if made is None else [made, *products])
    if on_gpu():  # where `InplaceAdd` loses rows of an id that comes twice
        return tf.add_n([tf.convert_to_tensor(tf.IndexedSlices(made.values, made.indices, shape)), *products])
    # In place, because a sum of two whole vocabularies would read and write all the rows that get nothing, too.
    total = tf.add_n(products) if products else tf.raw_ops.Empty(shape=shape, dtype=made.dtype, init=True)
    return tf.raw_ops.InplaceAdd(x=total, i=made.indices, v=made.values)


def _heads_turned(x):
    """(B, H, T, S) -> (B, H, S, T), transposed before the product that reads it."""
    return barrier(tf.transpose(x, (0, 1, 3, 2)))
