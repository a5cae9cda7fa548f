"""Faster ways to multiply the few rows of a search by its many kernels.

A step of a search multiplies few rows by every kernel of the decoder, and its time goes into reading the kernels. In
their usual layout, libraries read a kernel for four rows at half the speed of the memory or less. So before its loop a
search may prepare another way to multiply for a layer, a `Product`:

    xla_products          XLA    arrays of (P, D, 64): the columns of a kernel (D, N), or of several, 64 together;
                                 for a large kernel, turned to (N, D), arrays of its rows, each as the left operand,
                                 and for every kernel where the processor has no AVX-512
    gpu_products          XLA    on a GPU: the kernels of layers that multiply the same rows, side by side
    left_product          any    a large vocabulary (V, D) as it lies, but as the left operand
    summed_product        graph  parts of a large kernel's rows, whose products are added; with gaps between the rows
    graph_panel_product   graph  one array of narrower panels (P, D, 32) of a large kernel
    turned_product        graph  a copy of the vocabulary turned around, (D, V)
    summed_network        graph  a whole feed-forward network, as a sum of narrower ones

Layers multiply by `product`, which is the plain product outside of `use_products`:

>>> with use_products(xla_products([layer])):
...     layer(x)
"""

import contextlib
import contextvars
import itertools
import math
import types
from collections.abc import Callable

import tensorflow as tf

from keras_transformer.fast.processor import AVX512, CORES
from keras_transformer.fast.strides import gap, with_gap, without_gap
from keras_transformer.fast.xla import barrier

LARGE = 2**22  # numbers of a vocabulary: more than a processor's caches hold
LARGE_DENSE = 2**20  # numbers of a dense layer's kernel: of those of 512 x 512, panels are faster for four rows
COLUMNS, GRAPH_COLUMNS = 64, 32  # of a panel
THREADS = min(CORES, 4)  # two read 1.4 times as fast as one; more were not measured
FEW_ROWS = 32  # with panels a search of 16 rows is 1.17 times as fast, of 32 rows 1.08 to 1.11, of 64 rows 0.84 to 0.94
LARGE_DENSE_ROWS = 128  # a search of 128 rows is 1.06 times as fast; products of 256 take longer
GRAPH_FEW_ROWS = 16  # when all large kernels had panels, a search of 8 was 1.23 times as fast, of 16 1.09
GRAPH_LARGE = 2**20  # numbers of a kernel
MOST_PARTS, LEAST_PART = 4, 2**17  # of a kernel in a graph: most parts, fewest numbers of one; found with two cores
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


def xla_products(layers, panels=None):
    """The fastest products for XLA, of layers that multiply the same rows. -> {layer: Product}

    Their kernels are put side by side. Every layer multiplies by all of them and takes its own columns of the result;
    XLA makes what is common only once. `panels` are their `xla_panels`, where these have been kept. They are for 2 to
    `FEW_ROWS` rows; with one, or with more, the kernel in its usual layout is faster. The rows of a dense layer's large
    kernel are for up to `LARGE_DENSE_ROWS`, because its result, which has to be turned around, is small.
    """
    transposed, panels = _are_transposed(layers), panels or xla_panels(layers)
    are_rows = panels[0].shape.rank == 2
    most = LARGE_DENSE_ROWS if is_large(layers) and not transposed else FEW_ROWS
    columns, size = _columns(layers)

    def of_all(rows):
        return by_rows(rows, panels) if are_rows else by_panels(rows, panels, size)

    def product_of(layer, begin, end):
        plain = plain_product(layer.cast_kernel(), transposed)

        def multiply(rows):
            num_rows = tf.shape(rows)[0]
            few = (num_rows > 1) & (num_rows <= most)  # for a single row XLA reads the usual layout fast
            return tf.cond(few, lambda: of_all(rows)[:, begin:end], lambda: plain(rows))

        return multiply

    return {layer: product_of(layer, *begin_end) for layer, begin_end in columns.items()}


def gpu_products(layers):
    """The products for XLA on a GPU, of layers that multiply the same rows. -> {layer: Product}

    XLA makes products of the same rows by one kernel there, which it puts together in every step; here that is done
    before the loop. So panels would be no panels, and a layer that is alone with its rows multiplies plainly.
    """
    if len(layers) == 1:
        return {}
    of_all = plain_product(_side_by_side(layers), _are_transposed(layers))

    def product_of(begin, end):
        return lambda rows: of_all(rows)[:, begin:end]

    return {layer: product_of(*columns) for layer, columns in _columns(layers)[0].items()}


def xla_panels(layers):
    """The arrays that `xla_products` multiply by: (P, D, COLUMNS) each, or (N / arrays, D) for large kernels.

    XLA multiplies by the panels of one array in one thread, so there are as many arrays as threads, or fewer. Without
    AVX-512 it reads a panel 16 columns at a time, in several passes, so there every kernel is read by its rows.
    """
    transposed, kernels = _are_transposed(layers), _side_by_side(layers)
    if is_large(layers) or not AVX512:
        return in_rows(kernels if transposed else tf.transpose(kernels), THREADS)
    return to_panels(kernels, transposed, COLUMNS, THREADS)


def is_large(layers):
    """Whether the kernels of layers that multiply the same rows are large together."""
    return sum(math.prod(layer.kernel.shape) for layer in layers) >= (LARGE if _are_transposed(layers) else LARGE_DENSE)


def _are_transposed(layers):
    assert len({layer.is_transposed for layer in layers}) == 1, layers
    return layers[0].is_transposed


def _side_by_side(layers):
    """-> (D, N), or (N, D) if they are transposed"""
    return tf.concat([layer.cast_kernel() for layer in layers], axis=0 if _are_transposed(layers) else 1)


def _columns(layers):
    """Where the columns of each layer begin and end when the kernels are side by side. -> {layer: (begin, end)}, N"""
    sizes = [layer.kernel.shape[0 if layer.is_transposed else 1] for layer in layers]
    places = [0, *itertools.accumulate(sizes)]
    return dict(zip(layers, itertools.pairwise(places), strict=True)), places[-1]


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


def summed_product(kernel, gaps=False):
    """Multiplies as a sum of products with parts of the kernel's rows, for a graph without XLA. (D, N) -> Product

    These are independent, so TensorFlow makes several at the same time, which is faster than one product that oneDNN
    divides among the threads. A small kernel is not divided. `gaps`: regular rows get gaps (fast/strides.py), which is
    a copy of the kernel, and for many rows is faster.
    """
    size, sizes = kernel.shape[1], part_sizes(kernel, axis=0)
    parts = tf.split(with_gap(kernel) if gaps else kernel, sizes, axis=0)

    def sum_of_products(rows):
        pairs = zip(tf.split(rows, sizes, axis=1), parts, strict=True)
        y = tf.add_n([tf.matmul(*pair) for pair in pairs])
        return without_gap(y, size) if gaps else y

    return sum_of_products


def summed_network(w1, b1, w2, b2, gaps=False):
    """A feed-forward network as a sum of narrower ones, for a graph without XLA or panels. -> Product

    max(0, x W1 + b1) W2 is the sum of the same expression over parts: some columns of W1 and b1, and the same rows of
    W2. The narrow networks are independent: several products run at the same time, and none waits for another.
    `gaps` as in `summed_product`; those of W1 are columns of it, so b1 has as many zeros more and W2 as many rows.
    """
    size, sizes = w2.shape[1], part_sizes(w1, axis=1)
    parts = zip(tf.split(w1, sizes, axis=1), tf.split(b1, sizes), tf.split(w2, sizes, axis=0), strict=True)
    narrow = [_network_with_gaps(*part) for part in parts] if gaps else list(parts)
    b2 = tf.pad(b2, [[0, gap(size)]]) if gaps else b2

    def sum_of_networks(rows):
        hidden = [tf.nn.relu(tf.nn.bias_add(tf.matmul(rows, w1), b1)) for w1, b1, _ in narrow]
        y = tf.add_n([tf.matmul(x, w2) for x, (_, _, w2) in zip(hidden, narrow, strict=True)])
        y = tf.nn.bias_add(y, b2)
        return without_gap(y, size) if gaps else y

    return sum_of_networks


def _network_with_gaps(w1, b1, w2):
    columns = gap(w1.shape[1])
    return with_gap(w1), tf.pad(b1, [[0, columns]]), tf.pad(w2, [[0, columns], [0, gap(w2.shape[1])]])


def part_sizes(kernel, axis):
    """How a kernel is divided for a graph without XLA: the sizes of its parts along an axis, nearly equal."""
    size = kernel.shape[axis]
    number = max(1, min(MOST_PARTS, math.prod(kernel.shape) // LEAST_PART, size))
    return [(size + place) // number for place in range(number)]


def graph_panel_product(kernel, transposed=False):
    """Multiplies by narrower panels, for few rows in a graph without XLA. (D, N) or transposed (N, D) -> Product"""
    size = kernel.shape[0 if transposed else 1]
    [panels] = to_panels(kernel, transposed, GRAPH_COLUMNS, num_arrays=1)
    return lambda rows: by_graph_panels(rows, panels, size)


def is_large_in_graph(kernel):
    """Whether panels of a kernel pay in a graph; a smaller one stays in the processor's caches as it is."""
    return math.prod(kernel.shape) >= GRAPH_LARGE


def turned_product(kernel):
    """Multiplies by a transposed copy, for a graph without XLA, which would transpose the kernel for every product.

    (V, D) -> Product
    """
    return plain_product(tf.transpose(kernel))


def to_panels(kernel, transposed, columns, num_arrays):
    """(D, N) -> arrays of (P, D, columns), equally many panels in each; `transposed` is a kernel of shape (N, D).

    The end is filled up with zeros. An array that would hold nothing but zeros is left out.
    """
    columns_axis = 0 if transposed else 1
    size = kernel.shape[columns_axis]
    each = -(-size // (columns * num_arrays))  # P
    num_panels = each * -(-size // (columns * each))
    if num_panels * columns > size:
        missing = [[0, 0], [0, 0]]
        missing[columns_axis][1] = num_panels * columns - size
        kernel = tf.pad(kernel, missing)
    parts = [(begin, begin + each) for begin in range(0, num_panels, each)]
    if transposed:
        panels = tf.reshape(kernel, (num_panels, columns, -1))
        return tuple(tf.transpose(panels[begin:end], (0, 2, 1)) for begin, end in parts)
    # This is a transposition of (D, N / columns, columns), which as such XLA would make at half the speed.
    depth = kernel.shape[0]
    rows_of_panels = tf.reshape(kernel, (depth * num_panels, columns))
    places = num_panels * tf.range(depth)[None, :]
    return tuple(tf.gather(rows_of_panels, tf.range(begin, end)[:, None] + places) for begin, end in parts)


def in_rows(kernel, num_arrays):
    """(N, D) -> arrays of (N / num_arrays, D), rounded up: the last may have fewer rows, there may be fewer arrays"""
    each = -(-kernel.shape[0] // num_arrays)
    return tuple(kernel[begin : begin + each] for begin in range(0, kernel.shape[0], each))


def by_rows(rows, arrays):
    """(R, D), the rows of a kernel (N, D) in arrays -> (R, N)

    Every array is a left operand, which is read in its usual layout. Without the barrier XLA would make the products
    the other way round and transpose the whole array each time. A single array, a batch or slices of the kernel take
    longer, up to five times as long (docs/log.md).
    """
    products = [tf.transpose(barrier(tf.matmul(array, rows, transpose_b=True))) for array in arrays]
    return tf.concat(products, axis=1)


def by_panels(rows, panels, size):
    """(R, D), arrays of (P, D, columns), P the same in all -> (R, N), where N is `size`"""
    # One copy of the rows for all arrays. With a copy for each, XLA would reuse the memory of the first for the second
    # product, which then could not begin before the first has ended.
    copies = tf.tile(rows[None], (panels[0].shape[0], 1, 1))
    each = panels[0].shape[0] * panels[0].shape[2]  # columns of an array
    sizes = [min(each, size - begin) for begin in range(0, size, each)]
    products = [_columns_together(tf.matmul(copies, part), n) for part, n in zip(panels, sizes, strict=True)]
    return tf.concat(products, axis=1)


def by_graph_panels(rows, panels, size):
    """(R, D), (P, D, columns) -> (R, N), where N is `size`"""
    return _columns_together(tf.matmul(rows, panels), size, transpose_in_graph)


def transpose_in_graph(x, axes):
    """`tf.transpose` of few numbers, without a gradient, in a graph that XLA does not compile.

    They are transposed as integers: TensorFlow hands transpositions of floats over to oneDNN, which takes ten times as
    long for the few numbers that one step of a search has.
    """
    integer = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    return tf.bitcast(tf.transpose(tf.bitcast(x, integer), axes), x.dtype)


def _columns_together(y, size, transpose=tf.transpose):
    """(P, R, columns) -> (R, N)"""
    y = y[: -(-size // y.shape[2])]  # without panels that are nothing but zeros
    return tf.reshape(transpose(y, (1, 0, 2)), (-1, y.shape[0] * y.shape[2]))[:, :size]
