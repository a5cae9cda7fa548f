"""The length penalty, and the best of a vocabulary."""

import tensorflow as tf

from keras_transformer.xla import block_size

MINUS_INFINITY = float("-inf")


def length_penalty(lengths, alpha):
    """lp(Y) = ((5 + |Y|) / 6) ^ alpha (Wu et al. 2016, equation 14), |Y| counts eos. int32 -> float32, any shape"""
    return ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** alpha


def top_k(values, k):
    """`tf.math.top_k` to the last tie, but several times faster for few of many. (N, V) -> values, ids, 2 x (N, k)

    Of a row that has NaN some ids come, no matter which.
    """
    best, _, ids = top_k_of_rows(values[:, None], k)
    return best, ids


def top_k_of_rows(values, k, score=lambda x: x, numbers=()):
    """The best k of the W rows of V values together, by their scores. (B, W, V) -> scores, rows, ids, 3 x (B, k)

    The best k stand in the k blocks whose maxima have the best scores, so one cheap pass finds the blocks, and only
    these are sorted. Of equal scores the lower row comes first, then the lower id:

        blocks of 4 | 3 1 0 2 | 9 4 7 1 | 5 5 0 1 | k = 2
        maxima      |    3    |    9    |    5    | -> sort 9 4 7 1 5 5 0 1 -> 9 and 7, at 4 and 6

    Args:
        values: (B, W, V).
        k: how many.
        score: of an array of values (B, N, M) and the numbers of their rows, (B, N, 1) each. Of a row a greater value
            must not have a lower score. NaN counts as minus infinity, and of no other value may the score be NaN.
        numbers: (B, W) each, what `score` has to know of every row.
    """
    width, size = values.shape[1:]
    block = block_size(size)

    def sorted_top_k(values, numbers, k):
        # NaN has no order and may lead the sort out of its array; NaN > x is false. The values are asked, not the
        # scores: they are read twice then, and XLA does not move the maxima of blocks into the loop of their scores,
        # where it would find them number by number.
        scores = tf.where(values > MINUS_INFINITY, score(values, *(x[:, :, None] for x in numbers)), MINUS_INFINITY)
        return tf.math.top_k(tf.reshape(scores, (-1, values.shape[1] * values.shape[2])), k)

    if width * size < 4 * k * block:
        best, places = sorted_top_k(values, numbers, k)
        return best, places // size, places % size
    if size % block:
        values = tf.pad(values, [[0, 0], [0, 0], [0, -size % block]], constant_values=MINUS_INFINITY)
    num_blocks = values.shape[2] // block  # of a row
    blocks = tf.reshape(values, (-1, width, num_blocks, block))
    _, chosen = sorted_top_k(tf.reduce_max(blocks, axis=3), numbers, k)
    chosen = tf.sort(chosen, axis=1)  # (B, k)
    rows = chosen // num_blocks
    values = tf.gather(tf.reshape(blocks, (-1, width * num_blocks, block)), chosen, batch_dims=1)  # (B, k, block)
    best, places = sorted_top_k(values, [tf.gather(x, rows, batch_dims=1) for x in numbers], k)
    chosen = tf.gather(chosen, places // block, batch_dims=1)
    return best, chosen // num_blocks, chosen % num_blocks * block + places % block
