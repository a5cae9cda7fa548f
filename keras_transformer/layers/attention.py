"""Attention, Section 3.2: the mathematics as pure functions, the weights as a layer.

`MultiHeadAttention` has no modes. Caching falls out of the composition: `call` is `attend(query, project(memory))`, and
whoever wants to keep the keys and values calls the two halves:

    memory --project--> KVCache --(kept, extended, reused)--> attend(query, cache, mask) --> (B, T, D)
"""

import contextlib
import contextvars
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.layers.dense import Dense, leading_shape
from keras_transformer.layers.dropout import Dropout


def scaled_dot_product(query, key):
    """Q K^T / sqrt(d_k), equation 1. (B, H, T, K) x (B, H, S, K) -> (B, H, T, S)"""
    return dot_product(query * query.shape[-1] ** -0.5, key)


def dot_product(query, key):
    """Q K^T without the scale, Section 3.2.1. (B, H, T, K) x (B, H, S, K) -> (B, H, T, S)"""
    return tf.matmul(query, key, transpose_b=True)


def additive(query, key, vector):
    """v . tanh(q + k): a feed-forward network with one hidden layer, Section 3.2.1. -> (B, H, T, S)"""
    hidden = ops.tanh(ops.expand_dims(query, 3) + ops.expand_dims(key, 2))  # (B, H, T, S, K)
    return ops.sum(hidden * vector[:, None, None, :], axis=-1)


def attention_weights(scores, mask):
    """Softmax of the scores over the keys that `mask` allows, in float32 or more. A query that may attend to nothing
    (padding) gets equal weights instead of NaN. (B, H, T, S), (B or 1, T or 1, S) -> (B, H, T, S)"""
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    # Paper: minus infinity. Here: the least float32, whose exponential is 0 all the same, because a row of nothing but
    # minus infinities would be NaN.
    lowest = tf.constant(-3.4028235e38, scores.dtype)
    # Not ops.softmax, which warns of a single key, and a sentence may have one word.
    return tf.nn.softmax(tf.where(mask[:, None], scores, lowest), axis=-1)


def attention(query, key, value, mask):
    """Scaled dot-product attention, equation 1. (B, H, T, K) x (B, H, S, K) x (B, H, S, K) -> (B, H, T, K)"""
    weights = attention_weights(scaled_dot_product(query, key), mask)
    return ops.matmul(ops.cast(weights, value.dtype), value)


class KVCache(NamedTuple):
    """The projected keys and values of a sequence."""

    key: tf.Tensor  # (B, H, S, d_k)
    value: tf.Tensor  # (B, H, S, d_v)

    def write(self, fresh, index):
        """This cache with its slots from `index` * W on replaced by the W positions of the cache `fresh`."""
        return type(self)(*(self._written(old, new, index) for old, new in zip(self, fresh, strict=True)))

    @classmethod
    def start(cls, batch, heads, slots, widths, dtype):
        """An empty cache; `widths` are d_k and d_v."""
        return cls(*(tf.zeros((batch, heads, slots, width), dtype) for width in widths))

    @staticmethod
    def swapped(x):
        """(B, T, H, K) -> (B, H, T, K), and back."""
        return tf.transpose(x, (0, 2, 1, 3))

    @staticmethod
    def _written(buffer, update, index):
        # An op that takes an `index` that XLA does not know before it runs. XLA makes it work in place. The update of a
        # strided slice cannot have such an index, and ops.slice_update is an op of XLA's own.
        grouped, update = _groups(buffer, update)
        batch, heads = tf.shape(grouped)[0], grouped.shape[1]
        places = tf.stack(tf.meshgrid(tf.range(batch), tf.range(heads), index, indexing="ij"), axis=-1)[:, :, 0]
        return tf.reshape(tf.tensor_scatter_nd_update(grouped, places, update[:, :, 0]), tf.shape(buffer))


class GraphKVCache(KVCache):
    """A cache for a loop in a graph that XLA does not compile. It is overwritten: nobody may look back at an older one.

    TensorFlow's operations for such a graph have other prices. That of `KVCache.write` copies the whole cache; this one
    works in place, and XLA has none.
    """

    @classmethod
    def start(cls, batch, heads, slots, widths, dtype):
        # A stateful op, of which TensorFlow does not make one where there are several of a shape.
        return cls(*(tf.raw_ops.Empty(shape=(batch, heads, slots, width), dtype=dtype, init=True) for width in widths))

    @staticmethod
    def swapped(x):
        # As if the numbers were integers: TensorFlow hands the transposition of floats over to oneDNN, which takes ten
        # times as long for the few that one step of a search has. There is no gradient.
        integer = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
        return tf.bitcast(tf.transpose(tf.bitcast(x, integer), (0, 2, 1, 3)), x.dtype)

    @staticmethod
    def _written(buffer, update, index):
        grouped, update = _groups(buffer, update)
        _, heads, steps, size = grouped.shape
        rows = tf.shape(grouped)[0] * heads
        steps = tf.shape(grouped)[2] if steps is None else steps
        flat = tf.raw_ops.InplaceUpdate(
            x=tf.reshape(grouped, (-1, size)), i=tf.range(rows) * steps + index, v=tf.reshape(update, (-1, size))
        )
        return tf.reshape(flat, tf.shape(buffer))


def _groups(buffer, update):
    """Slots that are written together lie together, and are written as one.

    (B, H, L, K), (B, H, W, K) -> (B, H, L / W, W * K), (B, H, 1, W * K)
    """
    (_, heads, slots, size), width = buffer.shape, update.shape[2]
    steps = tf.shape(buffer)[2] // width if slots is None else slots // width
    return tuple(tf.reshape(x, (-1, heads, n, width * size)) for x, n in ((buffer, steps), (update, 1)))


_record = contextvars.ContextVar("attention_record", default=None)


@contextlib.contextmanager
def record_attention():
    """Inside, every attention layer appends (layer, weights of shape (B, H, T, S)) to the list that this yields.

    >>> with record_attention() as record:
    ...     memory, memory_mask = model.encode(source_ids)
    >>> layer, weights = record[0]
    """
    record = []
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Several attentions side by side, each over its own projections, Section 3.2.2. No biases.

    Args:
        num_heads: h, the number of attentions.
        d_model: width of queries, memory and output.
        d_k: width of a head's queries and keys.
        d_v: width of a head's values.
        dropout: share of the attention weights that training drops.
        scoring: "scaled_dot_product", "dot_product" or "additive", Section 3.2.1.
    """

    def __init__(self, num_heads, d_model, *, d_k, d_v, dropout=0.0, scoring="scaled_dot_product", **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.d_model, self.d_k, self.d_v = num_heads, d_model, d_k, d_v
        self.scoring = scoring
        self.query = self._projection(num_heads * d_k, "query")  # W^Q of all heads
        self.key = self._projection(num_heads * d_k, "key")  # W^K
        self.value = self._projection(num_heads * d_v, "value")  # W^V
        self.output_projection = self._projection(d_model, "output")  # W^O
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def _projection(self, units, name):
        return Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)

    def build(self, query_shape=None, memory_shape=None):
        for projection in (self.query, self.key, self.value):
            projection.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.num_heads * self.d_v))
        if self.scoring == "additive":
            self.score_vector = self.add_weight(
                shape=(self.num_heads, self.d_k), initializer="glorot_uniform", name="score_vector"
            )

    def project(self, memory, kind=KVCache):
        """The keys and values of `memory`. (B, S, D) -> KVCache"""
        return kind(*(kind.swapped(self._split_heads(part(memory))) for part in (self.key, self.value)))

    def attend(self, query, cache, mask):
        """What the positions of `query` read from the projected sequence. (B, T, D), KVCache, mask -> (B, T, D)"""
        scores = self._score(cache.swapped(self._split_heads(self.query(query))), cache.key)  # (B, H, T, S)
        weights = attention_weights(scores, mask)
        if (record := _record.get()) is not None:
            record.append((self, weights))
        weights = self.dropout(ops.cast(weights, self.compute_dtype))
        return self.output_projection(self._merge_heads(cache.swapped(ops.matmul(weights, cache.value))))

    def call(self, query, memory, mask):
        return self.attend(query, self.project(memory), mask)

    def compute_output_shape(self, query_shape, *_):
        return query_shape

    def _score(self, query, key):
        if self.scoring == "additive":
            return additive(query, key, ops.cast(self.score_vector, query.dtype))
        return {"scaled_dot_product": scaled_dot_product, "dot_product": dot_product}[self.scoring](query, key)

    def _split_heads(self, x):
        """(B, T, H*K) -> (B, T, H, K)"""
        return tf.reshape(x, (*leading_shape(x), self.num_heads, x.shape[-1] // self.num_heads))

    def _merge_heads(self, x):
        """(B, T, H, K) -> (B, T, H*K)"""
        return tf.reshape(x, (*leading_shape(x)[:2], self.num_heads * self.d_v))
