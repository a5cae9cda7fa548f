"""The length penalty, and of the logits of a vocabulary the normaliser and the best ids."""

from typing import NamedTuple, Self

import tensorflow as tf

from keras_transformer.fast.xla import block_size, by_operations_on_cpu, in_blocks, log_sum_exp

MINUS_INFINITY = float("-inf")


def length_penalty(lengths, alpha):
    """lp(Y) = ((5 + |Y|) / 6) ^ alpha (Wu et al. 2016, equation 14), |Y| counts eos. int32 -> float32, any shape"""
    return ((5.0 + tf.cast(lengths, tf.float32)) / 6.0) ** alpha


class Blocks(NamedTuple):
    """Rows of values cut into blocks, with the maximum of each block, which is computed only once for all uses."""

    values: tf.Tensor  # (B, W, V)
    blocks: tf.Tensor  # (B, W, V / block, block), filled up with minus infinity
    maxima: tf.Tensor  # (B, W, V / block)

    @classmethod
    def of(cls, values) -> Self:
        """(B, W, V)"""
        size = values.shape[2]
        whole = -(-size // block_size(size)) * block_size(size)
        padded = values
        if whole > size:
            padded = tf.pad(values, [[0, 0], [0, 0], [0, whole - size]], constant_values=MINUS_INFINITY)
        blocks = in_blocks(padded, block_size(size))
        return cls(values, blocks, tf.reduce_max(blocks, axis=3))


def log_normaliser(logits: Blocks):
    """log(sum(exp)) of every row, without a gradient. -> (B, W)

    Without XLA the operations of `tf.reduce_logsumexp` write a whole vocabulary twice and read it four times. A softmax
    is one operation, and its greatest probability is 1 / sum(exp(x - max)).
    """
    if not by_operations_on_cpu():
        return log_sum_exp(logits.values, logits.maxima)
    _, width, num_blocks, block = logits.blocks.shape
    probabilities = tf.nn.softmax(tf.reshape(logits.blocks, (-1, width, num_blocks * block)))
    place = tf.argmax(logits.maxima, axis=2, output_type=tf.int32)  # (B, W), of the block with the greatest
    likeliest = tf.gather(in_blocks(probabilities, block), place, batch_dims=2)  # (B, W, block)
    greatest = tf.minimum(tf.reduce_max(likeliest, axis=2), 1.0)  # rounding might give more than 1
    return tf.reduce_max(logits.maxima, axis=2) - tf.math.log(greatest)


def top_k(values, k):
    """`tf.math.top_k` to the last tie, but several times faster for few of many. (N, V) -> values, ids, 2 x (N, k)

    A row that has NaN gives arbitrary ids.
    """
    best, _, ids = top_k_of_rows(Blocks.of(values[:, None]), k)
    return best, ids


def top_k_of_rows(rows: Blocks, k, score=lambda x: x, numbers=()):
    """The best k of all values in W rows of V together, by their scores. -> scores, rows, ids, 3 x (B, k)

    The best k stand in the k blocks whose maxima have the best scores, so one cheap pass finds the blocks, and only
    these are sorted. Of equal scores the lower row comes first, then the lower id:

        blocks of 4 | 3 1 0 2 | 9 4 7 1 | 5 5 0 1 | k = 2
        maxima      |    3    |    9    |    5    | -> sort 9 4 7 1 5 5 0 1 -> 9 and 7, at 4 and 6

    Args:
        rows: their `Blocks`.
        k: how many.
        score: a function of values (B, N, M) and of the numbers of their rows, (B, N, 1) each. Within a row a greater
            value must not have a lower score. NaN counts as minus infinity; no other value may have the score NaN.
        numbers: (B, W) each, what `score` has to know about every row.
    """
    values, blocks, maxima = rows
    width, size = values.shape[1:]
    num_blocks, block = blocks.shape[2:]

    def sorted_top_k(values, numbers, k):
        # NaN has no order and may lead the sort out of its array; NaN > x is false. The values are compared, not the
        # scores: as they are then read twice, XLA does not move the maxima of blocks into the loop of their scores,
        # where it would find them number by number.
        scores = tf.where(values > MINUS_INFINITY, score(values, *(x[:, :, None] for x in numbers)), MINUS_INFINITY)
        return tf.math.top_k(tf.reshape(scores, (-1, values.shape[1] * values.shape[2])), k)

    if width * size < 4 * k * block:
        best, places = sorted_top_k(values, numbers, k)
        return best, places // size, places % size
    _, chosen = sorted_top_k(maxima, numbers, k)
    chosen = tf.sort(chosen, axis=1)  # (B, k)
    of_rows = chosen // num_blocks
    values = tf.gather(tf.reshape(blocks, (-1, width * num_blocks, block)), chosen, batch_dims=1)  # (B, k, block)
    best, places = sorted_top_k(values, [tf.gather(x, of_rows, batch_dims=1) for x in numbers], k)
    chosen = tf.gather(chosen, places // block, batch_dims=1)
    return best, chosen // num_blocks, chosen % num_blocks * block + places % block
