import math

import keras
import numpy as np
import pytest

from keras_transformer import NegativeLogLikelihood, Perplexity, TokenAccuracy
from keras_transformer.metrics import perplexity
from tests import reference

B, V = 3, 31
PAD = 0
METRICS = pytest.mark.parametrize("kind", [NegativeLogLikelihood, Perplexity, TokenAccuracy])


def batch(length, seed):
    rng = np.random.default_rng(seed)
    labels = np.where(np.arange(length) < [[length], [length - 1], [1]], rng.integers(1, V, (B, length)), PAD)
    logits = rng.normal(scale=length, size=(B, length, V)).astype("float32")  # long batches are less certain
    return labels, logits


def token_values(kind, labels, logits):
    """What `kind` averages, of every label."""
    if kind is TokenAccuracy:
        return (logits.argmax(-1) == labels).astype(float)
    return reference.smoothed_cross_entropy(logits, labels, 0.0)


def expected(kind, batches):
    values, weights = (np.concatenate([np.ravel(part) for part in parts]) for parts in zip(*batches, strict=True))
    mean = np.average(values, weights=weights)
    return np.exp(mean) if kind is Perplexity else mean


@METRICS
def test_it_is_the_mean_over_all_tokens_of_batches_of_any_length(kind):
    metric, batches = kind(), []
    for length, seed in ((2, 1), (13, 2), (5, 3)):
        labels, logits = batch(length, seed)
        metric.update_state(labels, logits)
        batches.append((token_values(kind, labels, logits), labels != PAD))
    assert float(metric.result()) == pytest.approx(expected(kind, batches), rel=1e-5)


@METRICS
@pytest.mark.parametrize("shape", [(B, 7), (B, 1), (B,)])
def test_padding_has_no_weight_whatever_the_sample_weights_say(rng, kind, shape):
    labels, logits = batch(7, 1)
    given = rng.uniform(0.5, 2, shape)
    metric = kind()
    metric.update_state(labels, logits, sample_weight=given)
    weights = np.broadcast_to(given.reshape(B, -1), labels.shape) * (labels != PAD)
    assert float(metric.result()) == pytest.approx(
        expected(kind, [(token_values(kind, labels, logits), weights)]), rel=1e-5
    )


def test_tokens_are_counted_in_float32_where_keras_has_half_precision():
    before = keras.config.floatx()
    keras.config.set_floatx("bfloat16")
    try:
        metric = TokenAccuracy()
    finally:
        keras.config.set_floatx(before)
    for _ in range(3):
        metric.update_state(np.ones((1, 301)), np.tile([0.0, 1.0, 0.0], (1, 301, 1)))
    assert float(metric.count) == 903  # no number of bfloat16


def test_accuracy_is_the_share_of_labels_with_the_highest_score():
    labels = np.array([[3, 5, 7, PAD], [11, PAD, PAD, PAD]])
    logits = np.eye(V)[np.array([[3, 5, 6, PAD], [11, PAD, 1, 2]])]
    metric = TokenAccuracy()
    metric.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(3 / 4)


def test_a_model_that_knows_nothing_is_as_perplexed_as_the_vocabulary_is_large():
    metric = Perplexity()
    metric.update_state(np.full((2, 5), 3), np.zeros((2, 5, V)))
    assert float(metric.result()) == pytest.approx(V, rel=1e-5)


@METRICS
def test_a_reset_forgets_everything(kind):
    metric, fresh = kind(), kind()
    metric.update_state(*batch(7, 1))
    metric.reset_state()
    for each in (metric, fresh):
        each.update_state(*batch(5, 2))
    assert float(metric.result()) == float(fresh.result())


@METRICS
def test_serialisation_keeps_every_argument(kind):
    metric = kind(name="mine")
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(restored) is kind and restored.get_config() == metric.get_config() and restored.name == "mine"


def test_perplexities_read_well():
    assert perplexity(0) == 1.0 and math.isfinite(perplexity(1e9))
