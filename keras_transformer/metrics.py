"""Metrics beside the smoothed loss: per-token figures that do not depend on the smoothing.

They take labels `y_true` (B, T) and logits `y_pred` (B, T, V). Padding and negative labels have no weight, whatever the
sample weights say.
"""

import math

import keras
from keras import ops

from keras_transformer.losses import cross_entropies, dtype_of_sums, token_weights


class _TokenMean(keras.metrics.Mean):
    """Mean over all tokens of all batches of `values(y_true, y_pred)`: (B, T), (B, T, V) -> (B, T)."""

    def __init__(self, name, dtype=None):
        super().__init__(name=name, dtype=dtype_of_sums(dtype))

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(y_true, sample_weight)
        # Flat, because Keras would average over T first, and a token of a long batch would count less.
        super().update_state(ops.ravel(self.values(y_true, y_pred)), ops.ravel(weights))


@keras.saving.register_keras_serializable("keras_transformer")
class NegativeLogLikelihood(_TokenMean):
    """The true negative log-likelihood of a token, in nats: cross-entropy without label smoothing."""

    def __init__(self, name="nll", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self._direction = "down"  # for callbacks of Keras's that monitor it: less is better

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
        self._direction = "up"

    def values(self, y_true, y_pred):
        return ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1))


def perplexity(nll: float) -> float:
    """exp of the mean negative log-likelihood of a token; finite for every number."""
    return math.exp(min(nll, 700.0))  # 700: the end of float64
