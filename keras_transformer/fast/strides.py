"""Gaps between the rows of a matrix, for products by oneDNN.

Where rows are 256 numbers long, or a multiple of it, every fourth number of a column or more lies at the same place of
a page, and these have room for few at a time in a processor's first cache. oneDNN copies the factors of a large product
first; of a small one it reads the columns as they lie. 128 rows by a kernel of 512 x 2,048 are made at 78 GFLOP/s on a
processor without AVX-512, and at 144 where 16 zeros follow every row of the kernel (docs/log.md, 2026-11-28).
"""

import tensorflow as tf

GAP = 16  # numbers: of 32 bits, a line of the cache
REGULAR = 256  # numbers: rows of 384 are as fast without a gap
WIDEST = 8192  # numbers: for the gradient of a vocabulary of 32,000, copying its rows takes what a gap would save


def with_gap(x):
    """x, with columns of zeros at its end if its rows are regular. (R, N) -> (R, N + `gap(N)`)"""
    columns = gap(x.shape[1])
    return tf.pad(x, [[0, 0], [0, columns]]) if columns else x


def without_gap(y, columns):
    """The first columns, which are those of a product with `with_gap(x)`. (R, N + `gap(N)`), N -> (R, N)"""
    return y[:, :columns] if gap(columns) else y


def gap(columns):
    """How many columns of zeros `with_gap` adds to so many columns."""
    return GAP if columns % REGULAR == 0 and columns <= WIDEST else 0
