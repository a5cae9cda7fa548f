"""Products for a loop that XLA compiles.

    xla_products    arrays of (P, D, 64): the columns of a kernel (D, N), or of several, 64 together; for a large
                    kernel, turned to (N, D), arrays of its rows, each as the left operand, and so for every kernel
                    where the processor has no AVX-512
    gpu_products    on a GPU: the kernels of layers that multiply the same rows, side by side

Layers use them inside of `use_products` (products.py).
"""

import itertools
import math

import tensorflow as tf

from keras_transformer.fast.panels import columns_together, to_panels
from keras_transformer.fast.products import plain_product
from keras_transformer.fast.xla import barrier
from keras_transformer.processor import AVX512, CORES

LARGE = 2**22  # numbers of a vocabulary: more than a processor's caches hold
LARGE_DENSE = 2**20  # numbers of a dense layer's kernel: of those of 512 x 512, panels are faster for four rows
COLUMNS = 64  # of a panel
THREADS = min(CORES, 4)  # two read 1.4 times as fast as one; more were not measured
FEW_ROWS = 32  # with panels a search of 16 rows is 1.17 times as fast, of 32 rows 1.08 to 1.11, of 64 rows 0.84 to 0.94
LARGE_DENSE_ROWS = 128  # a search of 128 rows is 1.06 times as fast; products of 256 take longer


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
    products = [columns_together(tf.matmul(copies, part), n) for part, n in zip(panels, sizes, strict=True)]
    return tf.concat(products, axis=1)
