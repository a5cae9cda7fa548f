"""Products of a few rows with large kernels, as a step of the search has them for one sentence.

What such a product takes its time for is reading the kernel, and as kernels lie, libraries read one for four rows at
half the speed of the memory. Cut into panels it is read from beginning to end:

    kernel (D, N)  --to_panels-->  arrays of (P, D, 64): 64 columns lie together, N / 64 panels in all     once a search
    rows (R, D)  --panel_product-->  (R, N)                                                                in every step

XLA multiplies by the panels of one array in one thread, so there are as many arrays as threads. That is for 2 to
`FEW_ROWS` rows; with more, arithmetic takes a part of the time.

TensorFlow without XLA does best with narrower panels of large kernels in one array (P, D, 32). With 32 rows or more
they gain nothing. There it takes a kernel (D, N) as it lies, but a vocabulary, which is (N, D), it would turn around
for every product: a copy that is turned around before, (D, N), stands for the panels.

Layers multiply by `product`, a plain product outside of `use_panels`. Inside it takes the panels:

>>> with use_panels({layer: layer.panels()}):
...     layer(x)
"""

import contextlib
import contextvars
import itertools
import os
import types

import tensorflow as tf

COLUMNS, GRAPH_COLUMNS = 64, 32  # of a panel
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
THREADS = min(CORES, 4)  # two read 1.4 times as fast as one; more were not measured
FEW_ROWS = 8  # with more, XLA's own product is as fast
GRAPH_FEW_ROWS = 16  # a search of 8 is 1.23 times as fast, of 16 1.09
GRAPH_LARGE = 2**20  # numbers of a kernel; a smaller one stays in the processor's caches

_panels = contextvars.ContextVar("panels", default=types.MappingProxyType({}))  # by layer


@contextlib.contextmanager
def use_panels(panels):
    """Inside, rows are multiplied by the panels of their layer, {layer: panels}, where there are some and it pays."""
    token = _panels.set(panels)
    try:
        yield
    finally:
        _panels.reset(token)


def has_panels(layer):
    return layer in _panels.get()


def columns_a_thread(size):
    """The columns of a panel, where every thread has one."""
    return -(-size // THREADS)


def to_graph_panels(kernel, transposed=False):
    """(D, N), or (N, D) if `transposed` -> (P, D, GRAPH_COLUMNS), or (D, N) where that is as fast

    The last panel is filled up with zeros.
    """
    if kernel.shape.num_elements() < GRAPH_LARGE:
        return tf.transpose(kernel) if transposed else kernel
    return to_panels(kernel, transposed, GRAPH_COLUMNS, num_arrays=1)[0]


def to_panels(kernel, transposed=False, columns=COLUMNS, num_arrays=None):
    """(D, N) -> arrays of (P, D, columns), N / columns panels together; `transposed` is a kernel of shape (N, D).

    The last panel is filled up with zeros. There is an array a thread where `num_arrays` does not say how many.
    """
    num_arrays = num_arrays or THREADS
    columns_axis = 0 if transposed else 1
    missing = [[0, 0], [0, 0]]
    missing[columns_axis][1] = -kernel.shape[columns_axis] % columns
    if any(map(any, missing)):
        kernel = tf.pad(kernel, missing)
    num_panels = kernel.shape[columns_axis] // columns
    bounds = [num_panels * i // num_arrays for i in range(num_arrays + 1)]
    parts = [(begin, end) for begin, end in itertools.pairwise(bounds) if end > begin]
    if transposed:
        panels = tf.reshape(kernel, (num_panels, columns, -1))
        return tuple(tf.transpose(panels[begin:end], (0, 2, 1)) for begin, end in parts)
    # A transposition of (D, N / columns, columns), which XLA would make at half the speed.
    depth = kernel.shape[0]
    rows_of_panels = tf.reshape(kernel, (depth * num_panels, columns))
    places = num_panels * tf.range(depth)[None, :]
    return tuple(tf.gather(rows_of_panels, tf.range(begin, end)[:, None] + places) for begin, end in parts)


def panel_product(rows, panels, size):
    """(R, D), arrays of (P, D, columns) -> (R, N), where N is `size`"""
    y = tf.concat([tf.matmul(tf.tile(rows[None], (part.shape[0], 1, 1)), part) for part in panels], axis=0)
    return _columns_together(y, size)


def graph_panel_product(rows, panels, size):
    """(R, D), (P, D, columns) -> (R, N), where N is `size`"""
    return _columns_together(tf.matmul(rows, panels), size)


def _columns_together(y, size):
    """(P, R, columns) -> (R, N)"""
    return tf.reshape(tf.transpose(y, (1, 0, 2)), (-1, y.shape[0] * y.shape[2]))[:, :size]


def product(layer, rows, kernel, transposed=False):
    """rows x kernel, by the panels of the layer where it has some. (R, D), (D, N) or transposed (N, D) -> (R, N)"""

    def as_it_lies():
        return tf.matmul(rows, kernel, transpose_b=transposed)

    def by_panels():
        return panel_product(rows, panels, size)

    size = kernel.shape[0 if transposed else 1]
    panels = _panels.get().get(layer)
    if panels is None:
        return as_it_lies()
    if not isinstance(panels, tuple):  # of a graph: the kernel itself, or cut
        return tf.matmul(rows, panels) if len(panels.shape) == 2 else graph_panel_product(rows, panels, size)
    num_rows = tf.shape(rows)[0]
    few = (num_rows > 1) & (num_rows <= FEW_ROWS)  # for one row alone XLA reads a kernel fast as it lies
    return tf.cond(few, by_panels, as_it_lies)
