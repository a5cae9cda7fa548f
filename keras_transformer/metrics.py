"""What is reported beside the smoothed loss: per-token figures that do not depend on the smoothing.

A metric leaves padding out by itself where no sample weights are given.
"""

import keras
from keras import ops

from keras_transformer.layers.masks import PAD_ID
from keras_transformer.losses import cross_entropies


class _TokenMean(keras.metrics.Mean):
    """Mean over the tokens of `values(y_true, y_pred)`."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        if sample_weight is None:
            sample_weight = ops.not_equal(y_true, PAD_ID)
        super().update_state(self.values(y_true, y_pred), sample_weight)


@keras.saving.register_keras_serializable("keras_transformer")
class NegativeLogLikelihood(_TokenMean):
    """The true negative log-likelihood of a token, in nats: cross-entropy without label smoothing."""

    def __init__(self, name="nll", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def values(self, y_true, y_pred):
        return cross_entropies(y_true, y_pred, label_smoothing=0.0)[1]


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(NegativeLogLikelihood):
    """exp of the mean negative log-likelihood of a token."""

    def __init__(self, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_transformer")
class TokenAccuracy(_TokenMean):
    """Share of the tokens whose id has the highest score, under teacher forcing."""

    def __init__(self, name="accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def values(self, y_true, y_pred):
        return ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1))
