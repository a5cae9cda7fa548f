"""Attention, Section 3.2: the mathematics as functions, the weights as a layer.

`MultiHeadAttention` has no modes. Caching follows from composition: `call` is `attend(query, project(memory))`, and a
caller that wants to keep the keys and values calls the two halves itself:

    memory --project--> KVCache --(kept, extended, reused)--> attend(query, cache, mask) --> (B, T, D)
"""

import contextlib
import contextvars

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.layers.cache import KVCache
from keras_transformer.layers.dense import Dense, leading_shape
from keras_transformer.layers.dropout import Dropout


def dot_product(query, cache):
    """Q K^T, Section 3.2.1. (B, H, T, K), KVCache -> (B, H, T, S)"""
    return cache.dot_product(query)


def scaled_dot_product(query, cache):
    """Q K^T / sqrt(d_k), equation 1. (B, H, T, K), KVCache -> (B, H, T, S)"""
    return cache.dot_product(query * query.shape[-1] ** -0.5)


def additive(query, cache, vector):
    """v . tanh(q + k): a feed-forward network with one hidden layer, Section 3.2.1. -> (B, H, T, S)"""
    hidden = ops.tanh(ops.expand_dims(query, 3) + ops.expand_dims(cache.key_by_position, 2))  # (B, H, T, S, K)
    return ops.sum(hidden * vector[:, None, None, :], axis=-1)


SCORINGS = {"scaled_dot_product": scaled_dot_product, "dot_product": dot_product, "additive": additive}


def attention_weights(scores, mask, softmax=KVCache.softmax):
    """Softmax of the scores over the keys that `mask` allows, in float32 or more. A query that may attend to nothing
    (padding) gets equal weights instead of NaN. (B, H, T, S), (B or 1, T or 1, S) -> (B, H, T, S)

    `softmax` computes it over the last axis; every kind of cache has its own.
    """
    found = tf.TensorSpec(mask.shape, mask.dtype) if hasattr(mask, "dtype") else mask
    if not (isinstance(found, tf.TensorSpec) and found.dtype == tf.bool and found.shape.rank in (3, None)):
        raise ValueError(f"`mask` must be boolean, of shape (B or 1, queries or 1, keys). Received: {found}.")
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    # Paper: minus infinity. Here: the lowest float32, whose exponential is 0 as well, because the softmax of a row that
    # is all minus infinity would be NaN.
    lowest = tf.constant(tf.float32.min, scores.dtype)
    # Not ops.softmax: it warns where there is a single key, as in a sentence of one word.
    return softmax(tf.where(mask[:, None], scores, lowest))


_record = contextvars.ContextVar("attention_record", default=None)


@contextlib.contextmanager
def record_attention():
    """A context in which every attention layer appends (layer, weights of shape (B, H, T, S)) to the list it yields.

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
        if scoring not in SCORINGS:
            raise ValueError(f"`scoring` must be one of {', '.join(SCORINGS)}. Received: scoring={scoring!r}.")
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
        """Projects `memory` to keys and values; `kind` is the class of the cache they will go into. -> KVCache

        (B, S, D) -> (B, H, S, d_k), (B, H, S, d_v)
        """
        if not self.built:
            self.build()
        return KVCache(*(kind.swapped(self._split_heads(part(memory))) for part in (self.key, self.value)))

    def attend(self, query, cache, mask):
        """Attends from `query` to the projected sequence: softmax(Q K^T / sqrt(d_k)) V in every head, equation 1.

        (B, T, D), KVCache, mask -> (B, T, D)
        """
        if not self.built:
            self.build()
        scores = self._score(cache.swapped(self._split_heads(self.query(query))), cache)  # (B, H, T, S)
        weights = attention_weights(scores, mask, cache.softmax)
        if (record := _record.get()) is not None:
            record.append((self, weights))
        weights = self.dropout(ops.cast(weights, self.compute_dtype))
        return self.output_projection(self._merge_heads(cache.swapped(cache.weighted_sum(weights))))

    def call(self, query, memory, mask):
        """(B, T, D), (B, S, D), mask -> (B, T, D)"""
        return self.attend(query, self.project(memory), mask)

    def compute_output_shape(self, query_shape, *_):
        return query_shape

    def get_config(self):
        widths = {"num_heads": self.num_heads, "d_model": self.d_model, "d_k": self.d_k, "d_v": self.d_v}
        return {**super().get_config(), **widths, "dropout": self.dropout.rate, "scoring": self.scoring}

    def _score(self, query, cache):
        own = [ops.cast(self.score_vector, query.dtype)] if self.scoring == "additive" else []
        return SCORINGS[self.scoring](query, cache, *own)

    def _split_heads(self, x):
        """(B, T, H*K) -> (B, T, H, K)"""
        return tf.reshape(x, (*leading_shape(x), self.num_heads, x.shape[-1] // self.num_heads))

    def _merge_heads(self, x):
        """(B, T, H, K) -> (B, T, H*K)"""
        return tf.reshape(x, (*leading_shape(x)[:2], self.num_heads * self.d_v))
