"""Products for a loop in a graph without XLA, as TensorFlow Serving runs it.

    summed_product       parts of a large kernel's rows, whose products are added; with gaps between the rows
    summed_network       a whole feed-forward network, as a sum of narrower ones
    graph_panel_product  for few rows: one array of panels (P, D, 32) of a large kernel, narrower than XLA's
    turned_product       a copy of the vocabulary turned around, (D, V)

Layers use them inside of `use_products` (products.py).
"""

import math

import tensorflow as tf

from keras_transformer.fast.panels import columns_together, to_panels
from keras_transformer.fast.products import plain_product
from keras_transformer.fast.strides import gap, with_gap, without_gap

GRAPH_COLUMNS = 32  # of a panel
GRAPH_FEW_ROWS = 16  # when all large kernels had panels, a search of 8 was 1.23 times as fast, of 16 1.09
GRAPH_LARGE = 2**20  # numbers of a kernel
MOST_PARTS, LEAST_PART = 4, 2**17  # of a kernel in a graph: most parts, fewest numbers of one; found with two cores


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
    """Multiplies by panels narrower than XLA's, for few rows in a graph. (D, N) or transposed (N, D) -> Product"""
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


def by_graph_panels(rows, panels, size):
    """(R, D), (P, D, columns) -> (R, N), where N is `size`"""
    return columns_together(tf.matmul(rows, panels), size, transpose_in_graph)


def transpose_in_graph(x, axes):
    """`tf.transpose` of few numbers, without a gradient, in a graph that XLA does not compile.

    They are transposed as integers: TensorFlow hands transpositions of floats over to oneDNN, which takes ten times as
    long for the few numbers that one step of a search has.
    """
    integer = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    return tf.bitcast(tf.transpose(tf.bitcast(x, integer), axes), x.dtype)
