"""What may come at a position: lengths, a forced prefix, no repeated n-grams. Shared by all searches."""

import tensorflow as tf

from keras_transformer.decoding.scoring import MINUS_INFINITY


def within(constraints, max_length):
    """The constraints as int32 tensors, their limits no more than the `max_length` positions there is room for."""
    lengths = tf.minimum(tf.cast(constraints.max_lengths, tf.int32), max_length)
    constraints = constraints._replace(max_lengths=tf.maximum(lengths, 0))
    if constraints.min_lengths is not None:
        constraints = constraints._replace(min_lengths=tf.cast(constraints.min_lengths, tf.int32))
    if constraints.prefix_ids is None:
        return constraints
    prefix_ids = tf.cast(constraints.prefix_ids, tf.int32)
    prefix_lengths = tf.minimum(tf.cast(constraints.prefix_lengths, tf.int32), tf.shape(prefix_ids)[1])
    prefix_ids = tf.pad(prefix_ids, [[0, 0], [0, 1]])  # (B, P + 1): there is something to read behind the end
    return constraints._replace(prefix_ids=prefix_ids, prefix_lengths=prefix_lengths)


def forced(constraints, index):
    """The prefix's ids at position `index`, and whether the prefix reaches that far. -> (B,) int32, (B,) bool"""
    last = tf.shape(constraints.prefix_ids)[1] - 1
    return tf.gather(constraints.prefix_ids, tf.minimum(index, last), axis=1), index < constraints.prefix_lengths


def forbidden(ids, index, constraints, settings):
    """Whether `ids` may not come at position `index`: pad, bos, eos before the minimum length. -> bool, as `ids`

    Axis 0 of `ids` is the batch, or 1.
    """
    never = (ids == settings.pad_id) | (ids == settings.bos_id)
    if constraints.min_lengths is None:
        return never
    too_short = index + 1 < constraints.min_lengths  # (B,)
    return never | (ids == settings.eos_id) & tf.reshape(too_short, [-1] + [1] * (len(ids.shape) - 1))


NUM_FORBIDDEN = 3  # the most ids of a beam that `forbidden` can name: a search takes this many extra candidates a beam


def without_repeats(logits, history, index, settings):
    """Minus infinity for the ids that would repeat an n-gram of `history`. (N, V), (N, T) -> (N, V)

    Pad stands behind the end of the history.
    """
    if not settings.no_repeat_ngram:
        return logits
    ids = _completions(history, index, settings.no_repeat_ngram, nothing=settings.pad_id)  # (N, T)
    rows = tf.range(tf.shape(ids)[0])[:, None] + tf.zeros_like(ids)  # (N, T)
    places = tf.stack([rows, ids], axis=2)  # (N, T, 2)
    return tf.tensor_scatter_nd_update(logits, places, tf.fill(tf.shape(ids), MINUS_INFINITY))


def _completions(history, index, n, nothing):
    """The last ids of all n-grams whose first n - 1 ids are the newest of `history`. (N, T) -> (N, T)

    For n = 3, at index 6 (`.` is `nothing`):

        history        5 6 7 8 5 6 . .
        newest                 5 6
        followed by    . . 7 . . . . .
    """
    length, completions = tf.shape(history)[1], history
    before = tf.pad(history, [[0, 0], [n - 1, 0]], constant_values=-1)  # position p of history stands at p + n - 1
    for back in range(1, n):
        newest = tf.gather(before, index + n - 1 - back, axis=1)  # (N,)
        same = before[:, n - 1 - back : n - 1 - back + length] == newest[:, None]  # (N, T)
        completions = tf.where(same, completions, nothing)
    return completions
