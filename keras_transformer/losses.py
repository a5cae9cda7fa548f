"""Cross-entropy with label smoothing, Section 5.4."""

import keras
from keras import ops

from keras_transformer.layers.masks import PAD_ID


def cross_entropies(labels, logits, label_smoothing):
    """The smoothed loss and the true negative log-likelihood of every label, in nats. (B, T), (B, T, V) -> 2 x (B, T)

    The smoothed target is (1 - epsilon) one-hot + epsilon / V uniform. Its cross-entropy needs three numbers a position,
    the logit of the label, the mean of the logits and their log-sum-exp; no (B, T, V) target is made.
    """
    logits = ops.cast(logits, "float32")
    normaliser = ops.logsumexp(logits, axis=-1)  # (B, T)
    labels = ops.expand_dims(ops.cast(labels, "int32"), -1)
    nll = normaliser - ops.squeeze(ops.take_along_axis(logits, labels, axis=-1), -1)
    if not label_smoothing:
        return nll, nll
    uniform = normaliser - ops.mean(logits, axis=-1)  # cross-entropy against 1 / V everywhere
    return (1.0 - label_smoothing) * nll + label_smoothing * uniform, nll


@keras.saving.register_keras_serializable("keras_transformer")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Label-smoothed cross-entropy, the mean over all tokens that are not padding.

    Args:
        label_smoothing: epsilon_ls, the share of the uniform distribution in the target.
        reduction: as of every Keras loss. The default divides by the sum of the weights, that is by the number of tokens.
    """

    def __init__(self, label_smoothing=0.1, reduction="mean_with_sample_weight", name="loss", dtype=None):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing

    def __call__(self, y_true, y_pred, sample_weight=None):
        if sample_weight is None:
            sample_weight = ops.cast(ops.not_equal(y_true, PAD_ID), "float32")
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        return cross_entropies(y_true, y_pred, self.label_smoothing)[0]

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
