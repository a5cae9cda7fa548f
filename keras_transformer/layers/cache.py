"""The projected keys and values of a sequence: what attention makes and reads, and a search keeps.

This kind works everywhere. Searches have faster ones, `search_caches.py`.
"""

from typing import NamedTuple, Self

import tensorflow as tf

from keras_transformer.fast.gradients import key_product, value_product


class KVCache(NamedTuple):
    """The projected keys and values of a sequence. `key` and `value` are what attention makes."""

    key: tf.Tensor  # (B, H, S, d_k), or as the kind keeps them
    value: tf.Tensor  # (B, H, S, d_v), or as the kind keeps them

    @classmethod
    def start(cls, batch, heads, slots, widths, dtype) -> Self:
        """An empty cache; `widths` are d_k and d_v."""
        return cls.of(KVCache(*(tf.zeros((batch, heads, slots, width), dtype) for width in widths)))

    @classmethod
    def of(cls, cache: "KVCache") -> Self:
        """Converts a plain cache to this kind."""
        return cls(*cache)

    def grow(self, steps, width) -> Self:
        """This cache with empty slots appended, for `steps` more steps of `width` positions.

        A cache that has no slots yet must get at least two steps.
        """
        return type(self)(*(with_more(x, steps * width, axis=2) for x in self))

    def place(self, index, width):
        """Where `write` puts step `index` of `width` positions. The caches of a decoder have it in common, so it is
        computed once for all."""
        return index

    def write(self, fresh: "KVCache", place) -> Self:
        """This cache with the W positions of the plain cache `fresh` in its slots from `index` * W on."""
        return type(self)(*(_written(old, new, place) for old, new in zip(self, fresh, strict=True)))

    def dot_product(self, query):
        """Q K^T. (B, H, T, d_k) -> (B, H, T, S)"""
        return key_product(query, self.key)

    def weighted_sum(self, weights):
        """The weighted sum of the values. (B, H, T, S) -> (B, H, T, d_v)"""
        return value_product(weights, self.value)

    @property
    def key_by_position(self):
        """The keys as (B, H, S, d_k), in whatever layout this kind keeps them."""
        return self.key

    @staticmethod
    def softmax(scores):
        """The softmax over the last axis."""
        return tf.nn.softmax(scores, axis=-1)

    @staticmethod
    def swapped(x):
        """(B, T, H, K) -> (B, H, T, K), and back."""
        return tf.transpose(x, (0, 2, 1, 3))


def with_more(x, more, axis):
    """`x` with `more` zeros appended along `axis`."""
    paddings = [[0, 0] for _ in range(4)]
    paddings[axis][1] = more
    return tf.pad(x, paddings)


def _written(buffer, update, index):
    grouped, update = _groups(buffer, update)
    # This op takes an `index` that is known only when it runs. Under XLA the update of a strided slice cannot, and
    # ops.slice_update is an op of XLA's own.
    batch, heads = tf.shape(grouped)[0], grouped.shape[1]
    places = tf.stack(tf.meshgrid(tf.range(batch), tf.range(heads), index, indexing="ij"), axis=-1)[:, :, 0]
    return tf.reshape(tf.tensor_scatter_nd_update(grouped, places, update[:, :, 0]), tf.shape(buffer))


def _groups(buffer, update):
    """Groups the slots that are written together, so that each group is written as one.

    (B, H, L, K), (B, H, W, K) -> (B, H, L / W, W * K), (B, H, 1, W * K)
    """
    (_, heads, slots, size), width = buffer.shape, update.shape[2]
    steps = tf.shape(buffer)[2] // width if slots is None else slots // width
    return tuple(tf.reshape(x, (-1, heads, n, width * size)) for x, n in ((buffer, steps), (update, 1)))
