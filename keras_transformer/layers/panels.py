"""Products of a few rows with large kernels, as a step of the search has them for one sentence.

What such a product takes its time for is reading the kernel, and as kernels lie, libraries read one for four rows at
half the speed of the memory. Cut into panels it is read from beginning to end:

    kernel (D, N)  --to_panels-->  (N / 64, D, 64): 64 columns lie together       once a search
    rows (R, D)  --panel_product-->  (R, N)                                       in every step

That is for XLA. TensorFlow itself reads a kernel (D, N) fast as it lies, and slowly a vocabulary, which is (N, D) and
has to be turned around for every product: there its one panel has all columns, (1, D, N), and serves any number of rows.

Layers multiply by `product`, a plain product outside of `use_panels`. Inside it takes the panels:

>>> with use_panels({layer: layer.panels()}):
...     layer(x)
"""

import contextlib
import contextvars

import tensorflow as tf

COLUMNS = 64  # of a panel
FEW_ROWS = 8  # with more, arithmetic takes a part of the time, and XLA's own product is as fast

_panels = contextvars.ContextVar("panels", default=None)


@contextlib.contextmanager
def use_panels(panels):
    """Inside, rows are multiplied by the panels of their layer, where `panels` has some for it."""
    token = _panels.set(panels)
    try:
        yield
    finally:
        _panels.reset(token)


def to_panels(kernel, transposed=False, columns=COLUMNS):
    """(D, N) -> (N / columns, D, columns), the last one filled up with zeros; `transposed` is one of shape (N, D)."""
    columns_axis = 0 if transposed else 1
    missing = [[0, 0], [0, 0]]
    missing[columns_axis][1] = -kernel.shape[columns_axis] % columns
    if any(map(any, missing)):
        kernel = tf.pad(kernel, missing)
    num_panels = kernel.shape[columns_axis] // columns
    if transposed:
        return tf.transpose(tf.reshape(kernel, (num_panels, columns, -1)), (0, 2, 1))
    # A transposition of (D, N / columns, columns), which XLA would make at half the speed.
    depth = kernel.shape[0]
    places = tf.range(num_panels)[:, None] + num_panels * tf.range(depth)[None, :]
    return tf.gather(tf.reshape(kernel, (depth * num_panels, columns)), places)


def panel_product(rows, panels, size):
    """(R, D), (N / columns, D, columns) -> (R, N), where N is `size`"""
    num_panels, depth, columns = panels.shape
    if num_panels == 1:
        return tf.matmul(rows, tf.reshape(panels, (depth, columns)))[:, :size]
    y = tf.matmul(tf.tile(rows[None], (num_panels, 1, 1)), panels)  # (N / columns, R, columns)
    return tf.reshape(tf.transpose(y, (1, 0, 2)), (-1, num_panels * columns))[:, :size]


def has_panels(layer):
    return layer in (_panels.get() or {})


def product(layer, rows, kernel, transposed=False):
    """rows x kernel. (R, D), (D, N) or transposed (N, D) -> (R, N)"""

    def many():
        return tf.matmul(rows, kernel, transpose_b=transposed)

    def by_panels():
        return panel_product(rows, _panels.get()[layer], kernel.shape[0 if transposed else 1])

    if not has_panels(layer):
        return many()
    if _panels.get()[layer].shape[0] == 1:
        return by_panels()
    num_rows = tf.shape(rows)[0]
    few = (num_rows > 1) & (num_rows <= FEW_ROWS)  # for one row alone XLA reads a kernel fast as it lies
    return tf.cond(few, by_panels, many)
