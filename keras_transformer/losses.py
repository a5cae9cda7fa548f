"""Cross-entropy with label smoothing, Section 5.4."""

import math

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.fast.gradients import with_gradient
from keras_transformer.fast.xla import log_sum_exp, subtract_at
from keras_transformer.layers.masks import PAD_ID


def cross_entropies(labels, logits, label_smoothing):
    """The smoothed loss and the true negative log-likelihood of every label, in nats. (B, T), (B, T, V) -> 2 x (B, T)

    The smoothed target is (1 - epsilon) one-hot + epsilon / V uniform. Its cross-entropy needs three numbers a
    position, the logit of the label, the mean of the logits and their log-sum-exp; no (B, T, V) target is made. The
    gradient, softmax - target, is written out, so that the forward pass keeps nothing of that size but the logits. A
    label of V or more gives NaN (without XLA, on a CPU, an error).
    """
    logits = ops.cast(logits, keras.backend.result_type(logits.dtype, "float32"))
    labels = ops.cast(labels, "int32")
    if not tf.TensorShape(logits.shape[:-1]).is_compatible_with(labels.shape):
        found = f"{tuple(labels.shape)} and {tuple(logits.shape)}"
        raise ValueError(f"Labels must be ids of shape (B, T) beside logits (B, T, V). Received: {found}.")
    labels = ops.maximum(labels, 0)  # negative ones are no ids; `token_weights` gives them no weight

    @with_gradient
    def losses(logits):
        is_symbol = isinstance(logits, keras.KerasTensor)
        normaliser = ops.logsumexp(logits, axis=-1) if is_symbol else log_sum_exp(logits)  # (B, T)
        nll = normaliser - ops.squeeze(ops.take_along_axis(logits, labels[..., None], axis=-1), -1)
        nll = ops.where(labels < ops.shape(logits)[-1], nll, math.nan)  # else XLA takes the last id
        smoothed = nll
        if label_smoothing:
            uniform = normaliser - ops.mean(logits, axis=-1)  # cross-entropy against 1 / V everywhere
            smoothed = (1.0 - label_smoothing) * nll + label_smoothing * uniform

        def gradient(d_smoothed, d_nll, d_normaliser):
            num_ids = tf.shape(logits)[-1]
            d_logits = ops.exp(logits - normaliser[..., None]) * (d_smoothed + d_nll + d_normaliser)[..., None]
            if label_smoothing:
                d_logits -= (label_smoothing / tf.cast(num_ids, logits.dtype) * d_smoothed)[..., None]
            d_label = (1.0 - label_smoothing) * d_smoothed + d_nll
            return [subtract_at(d_logits, labels, d_label)]

        return (smoothed, nll, normaliser), gradient  # the gradient reads it, so it needs one too

    return losses(logits)[:2]


def token_weights(labels, sample_weight=None):
    """The weight of every label: 0 on padding and negative labels, else 1 or what `sample_weight` says.

    (B, T), and (B, T), (B, 1), (B,) or None -> (B, T)   or   (B,), and (B,) or None -> (B,)
    """
    real = ops.cast(ops.greater(labels, PAD_ID), "float32")
    if sample_weight is None:
        return real
    sample_weight = ops.cast(sample_weight, "float32")
    of_sentences = len(sample_weight.shape) < len(real.shape)
    return real * (ops.expand_dims(sample_weight, -1) if of_sentences else sample_weight)


def dtype_of_sums(dtype):
    """The dtype of a loss or a metric; without one at least float32, whatever Keras's floatx is.

    Keras casts labels to it, too, and 16 bits hold neither large ids nor the sum of many tokens.
    """
    return dtype or keras.backend.result_type(keras.config.floatx(), "float32")


@keras.saving.register_keras_serializable("keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy, the mean over all tokens. Padding and negative labels have no weight.

    To weigh single ids, make weights (B, T): Keras applies `class_weight` as if labels (B, T) were one-hot vectors.

    Args:
        label_smoothing: epsilon_ls, the share of the uniform distribution in the target.
        reduction: as for every Keras loss. The default divides by the sum of the weights, which is the number of tokens
            where there are no sample weights. Under a `tf.distribute` strategy Keras takes the mean of the replicas'
            means; `training.step.Trainee` takes the mean over all tokens.
    """

    def __init__(self, label_smoothing=0.1, reduction="mean_with_sample_weight", name="loss", dtype=None):
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"`label_smoothing` must be at least 0 and less than 1. Received: {label_smoothing}.")
        super().__init__(name=name, reduction=reduction, dtype=dtype_of_sums(dtype))
        self.label_smoothing = label_smoothing

    def __call__(self, y_true, y_pred, sample_weight=None):
        return super().__call__(y_true, y_pred, token_weights(y_true, sample_weight))

    def call(self, y_true, y_pred):
        return cross_entropies(y_true, y_pred, self.label_smoothing)[0]

    def get_config(self):
        return {**super().get_config(), "dtype": self.dtype, "label_smoothing": self.label_smoothing}
