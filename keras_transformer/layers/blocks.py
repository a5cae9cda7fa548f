"""The two blocks that Figure 1 stacks N times, and the residual and normalisation rule around their sub-layers."""

import keras

from keras_transformer.config import ModelConfig
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.cache import KVCache
from keras_transformer.layers.dense import LayerNormalization
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable("keras_transformer")
class AddNorm(keras.layers.Layer):
    """The box "Add & Norm" of Figure 1 around a sub-layer: `x = add_norm.after(x, sublayer(add_norm.before(x)))`.

    post: LayerNorm(x + Dropout(Sublayer(x))), the paper.   pre: x + Dropout(Sublayer(LayerNorm(x))).

    Args:
        d_model: width of the residual stream.
        norm: "post" or "pre".
        epsilon: of the layer normalisation.
        dropout: share of the sub-layer's output that training drops, Section 5.4.
    """

    def __init__(self, d_model, *, norm, epsilon, dropout, **kwargs):
        super().__init__(**kwargs)
        if norm not in ("post", "pre"):
            raise ValueError(f'`norm` must be "post" or "pre". Received: norm={norm!r}.')
        self.d_model, self.norm = d_model, norm
        self.layer_norm = LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name="layer_norm")
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, x_shape=None):
        self.layer_norm.build((None, None, self.d_model))

    def before(self, x):
        """The input of the sub-layer: normalised for "pre", `x` itself for "post". (B, T, D) -> (B, T, D)"""
        if not self.built:
            self.build()
        return self.layer_norm(x) if self.norm == "pre" else x

    def after(self, x, sublayer_output):
        """Adds the residual connection, and for "post" normalises the sum. (B, T, D), (B, T, D) -> (B, T, D)"""
        if not self.built:
            self.build()
        x = x + self.dropout(sublayer_output)
        return self.layer_norm(x) if self.norm == "post" else x

    def call(self, x, sublayer_output):
        return self.after(x, sublayer_output)

    def compute_output_shape(self, x_shape, *_):
        return x_shape

    def get_config(self):
        kept = {"d_model": self.d_model, "norm": self.norm, "epsilon": self.layer_norm.epsilon}
        return {**super().get_config(), **kept, "dropout": self.dropout.rate}


class _Block(keras.layers.Layer):
    """The parts of a block, made from the model's configuration (a ModelConfig, or its `to_dict()`)."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, ModelConfig) else ModelConfig.from_dict(config)

    def _new_attention(self, name):
        c = self.config
        return MultiHeadAttention(
            c.num_heads,
            c.d_model,
            d_k=c.key_width,
            d_v=c.value_width,
            dropout=c.attention_dropout,
            scoring=c.scoring,
            dtype=self.dtype_policy,
            name=name,
        )

    def _new_feed_forward(self, name):
        c = self.config
        return FeedForward(c.d_model, c.d_ff, dropout=c.feed_forward_dropout, dtype=self.dtype_policy, name=name)

    def _new_add_norm(self, name):
        c = self.config
        return AddNorm(
            c.d_model, norm=c.norm, epsilon=c.norm_epsilon, dropout=c.dropout, dtype=self.dtype_policy, name=name
        )

    def build(self, x_shape=None):
        for part in self._layers:
            if not part.built:  # by a call of its own
                part.build((None, None, self.config.d_model))

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderBlock(_Block):
    """Self-attention and a feed-forward network, the left half of Figure 1.

    Args:
        config: the `ModelConfig`, or a mapping of its fields.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.self_attention = self._new_attention("self_attention")
        self.self_attention_norm = self._new_add_norm("self_attention_norm")
        self.feed_forward = self._new_feed_forward("feed_forward")
        self.feed_forward_norm = self._new_add_norm("feed_forward_norm")

    def call(self, x, mask):
        """(B, S, D), mask -> (B, S, D)"""
        y = self.self_attention_norm.before(x)
        x = self.self_attention_norm.after(x, self.self_attention(y, y, mask))
        y = self.feed_forward_norm.before(x)
        return self.feed_forward_norm.after(x, self.feed_forward(y))

    def compute_output_shape(self, x_shape, *_):
        return x_shape


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderBlock(_Block):
    """Masked self-attention, attention to the encoder's output and a feed-forward network, the right half of Figure 1.

    Args:
        config: the `ModelConfig`, or a mapping of its fields.
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.self_attention = self._new_attention("self_attention")
        self.self_attention_norm = self._new_add_norm("self_attention_norm")
        self.cross_attention = self._new_attention("cross_attention")
        self.cross_attention_norm = self._new_add_norm("cross_attention_norm")
        self.feed_forward = self._new_feed_forward("feed_forward")
        self.feed_forward_norm = self._new_add_norm("feed_forward_norm")

    def call(self, x, mask, memory, memory_mask, past=None, place=None):
        """Decodes a whole target or, with `past`, one step: its positions are written into that cache at `place`.

        `memory` is the output of the encoder (B, S, D), or a KVCache, if it has been projected already. Returns the
        output (B, T, D), and the keys and values that self-attention read: those of `x` itself, written into `past`
        where there is one.
        """
        if not isinstance(memory, KVCache):
            memory = self.cross_attention.project(memory)
        y = self.self_attention_norm.before(x)
        fresh = self.self_attention.project(y, KVCache if past is None else type(past))
        present = fresh if past is None else past.write(fresh, place)
        x = self.self_attention_norm.after(x, self.self_attention.attend(y, present, mask))
        y = self.cross_attention_norm.before(x)
        x = self.cross_attention_norm.after(x, self.cross_attention.attend(y, memory, memory_mask))
        y = self.feed_forward_norm.before(x)
        return self.feed_forward_norm.after(x, self.feed_forward(y)), present
