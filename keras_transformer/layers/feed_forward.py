"""The position-wise feed-forward network, Section 3.3."""

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.fast.products import part_sizes, prepared_for
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

    def graph_product(self):
        """The network as a sum of narrower ones, for a graph without XLA or panels. (R, D) -> (R, D)

        max(0, x W1 + b1) W2 is the sum of the same expression over parts: some columns of W1 and b1, and the same rows
        of W2. The narrow networks are independent: several products run at the same time, and none waits for another.
        """
        w1, w2 = self.inner.cast_kernel(), self.outer.cast_kernel()
        b1, b2 = (ops.cast(layer.bias, self.compute_dtype) for layer in (self.inner, self.outer))
        sizes = part_sizes(w1, axis=1)
        narrow = list(zip(tf.split(w1, sizes, axis=1), tf.split(b1, sizes), tf.split(w2, sizes), strict=True))

        def sum_of_networks(rows):
            hidden = [tf.nn.relu(tf.nn.bias_add(tf.matmul(rows, w1), b1)) for w1, b1, _ in narrow]
            y = tf.add_n([tf.matmul(x, w2) for x, (_, _, w2) in zip(hidden, narrow, strict=True)])
            return tf.nn.bias_add(y, b2)

        return sum_of_networks

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "d_ff": self.d_ff, "dropout": self.dropout.rate}
