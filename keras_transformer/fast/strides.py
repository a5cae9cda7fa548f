"""Arrays for products by oneDNN, whose rows do not begin a power of two apart.

A processor has room for few numbers whose addresses are multiples of 4 KiB apart: they go to the same places of its
first cache. Where a product is too small for oneDNN to copy its factors first, it reads columns just so. Without
AVX-512, 128 rows by a kernel of 512 x 2,048 are made at 78 GFLOP/s, and at 144 if every row of the kernel is followed
by 16 zeros (docs/log.md).
"""

import tensorflow as tf

GAP = 16  # numbers: a line of the cache
APART = 256  # numbers; rows of a multiple of it are too regular. Those of 384 are not


def with_gap(x):
    """x, with columns of zeros at its end if its rows are too regular. (R, N) -> (R, N + `gap(N)`)"""
    columns = gap(x.shape[1])
    return tf.pad(x, [[0, 0], [0, columns]]) if columns else x


def without_gap(y, columns):
    """The first columns, which are those of a product with `with_gap(x)`. (R, N + `gap(N)`), N -> (R, N)"""
    return y[:, :columns] if gap(columns) else y


def gap(columns):
    """How many columns of zeros `with_gap` adds to so many columns."""
    return 0 if columns % APART else GAP
