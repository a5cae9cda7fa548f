"""Panels: the columns of a kernel, several neighbours together, so that they are read from beginning to end."""

import tensorflow as tf


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


def columns_together(y, size, transpose=tf.transpose):
    """What rows give with every panel, side by side, without what filled up the end. (P, R, columns) -> (R, N)

    N is `size`; `transpose` is what turns axes around.
    """
    y = y[: -(-size // y.shape[2])]  # without panels that are nothing but zeros
    return tf.reshape(transpose(y, (1, 0, 2)), (-1, y.shape[0] * y.shape[2]))[:, :size]
