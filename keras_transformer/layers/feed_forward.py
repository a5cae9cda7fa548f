"""The position-wise feed-forward network, Section 3.3."""

import keras
import tensorflow as tf

from keras_transformer.fast.products import prepared_for
from keras_transformer.layers.dense import Dense, leading_shape
from keras_transformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(keras.layers.Layer):
    """max(0, x W1 + b1) W2 + b2, equation 2.

    Args:
        d_model: width of input and output.
        d_ff: width between the two transformations.
        dropout: share of the inner activations that training drops.
    """

    def __init__(self, d_model, d_ff, *, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.d_model, self.d_ff = d_model, d_ff
        self.inner = Dense(d_ff, activation="relu", dtype=self.dtype_policy, name="inner")
        self.outer = Dense(d_model, dtype=self.dtype_policy, name="outer")
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, x_shape=None):
        self.inner.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))

    def call(self, x):
        """(B, T, D) -> (B, T, D)"""
        if (network := prepared_for(self)) is not None:
            return tf.reshape(network(tf.reshape(x, (-1, self.d_model))), (*leading_shape(x), self.d_model))
        return self.outer(self.dropout(self.inner(x)))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "d_ff": self.d_ff, "dropout": self.dropout.rate}
