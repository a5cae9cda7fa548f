"""Keras's dense layer and layer normalisation, in as few TensorFlow operations as they need.

XLA makes the same program of Keras's own layers, except for some gradients, which are faster here. In a graph without
XLA, as TensorFlow Serving runs it, every operation costs microseconds, and one step of the search has hundreds: Keras
takes 12 for the product of (B, T, D) and (D, N); here there are 3, which TensorFlow fuses with bias and ReLU.
"""

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.fast.gradients import on_every_row
from keras_transformer.fast.products import product
from keras_transformer.fast.xla import by_xla_on_cpu


@keras.saving.register_keras_serializable("keras_transformer")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`: activation(x W + b)."""

    is_transposed = False  # the kernel is (D, N)

    def call(self, x, training=False):
        """(..., D) -> (..., units)"""
        rows, trained_by_xla = tf.reshape(x, (-1, x.shape[-1])), training and by_xla_on_cpu()
        y = product(self, rows)
        if self.bias is not None:
            bias = ops.convert_to_tensor(self.bias)
            y = y + on_every_row(bias, y) if trained_by_xla else tf.nn.bias_add(y, bias)
        return tf.reshape(self.activation(y), (*leading_shape(x), self.units))

    def cast_kernel(self):
        """The kernel in the dtype of the products."""
        return ops.cast(self.kernel, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis, in float32 or more."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.axis not in (-1, [-1]) or not (self.center and self.scale) or self.rms_scaling:
            found = {name: getattr(self, name) for name in ("axis", "center", "scale", "rms_scaling")}
            raise ValueError(f"`LayerNormalization` must have axis=-1, center and scale. Received: {found}.")

    def call(self, x, training=False):
        """(..., D) -> (..., D)"""
        dtype = keras.backend.result_type(x.dtype, "float32")
        gamma, beta = ops.cast(self.gamma, dtype), ops.cast(self.beta, dtype)
        centred = ops.cast(x, dtype)
        centred = centred - tf.reduce_mean(centred, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        unit = centred * tf.math.rsqrt(variance + self.epsilon)
        if training:
            gamma, beta = on_every_row(gamma, unit), on_every_row(beta, unit)
        return ops.cast(unit * gamma + beta, self.compute_dtype)


def leading_shape(x):
    """The sizes of all axes of `x` but the last, as numbers where they are known. A single unknown one is -1."""
    sizes = list(x.shape[:-1])
    if sizes.count(None) <= 1:
        return [-1 if size is None else size for size in sizes]
    return [
        dynamic if size is None else size for size, dynamic in zip(sizes, tf.unstack(tf.shape(x)[:-1]), strict=True)
    ]
