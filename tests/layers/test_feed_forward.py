import numpy as np

from keras_transformer.layers.feed_forward import FeedForward
from tests.reference import feed_forward
from tests.small import randomise

B, T, D, F = 3, 7, 26, 29


def test_it_is_equation_2(rng):
    layer = FeedForward(D, F)
    layer.build()
    randomise(layer)
    weights = {
        "inner_kernel": layer.inner.kernel.numpy(),
        "inner_bias": layer.inner.bias.numpy(),
        "outer_kernel": layer.outer.kernel.numpy(),
        "outer_bias": layer.outer.bias.numpy(),
    }
    x = rng.normal(size=(B, T, D)).astype("float32")
    assert np.allclose(layer(x), feed_forward(weights, x), atol=1e-5)


def test_every_position_is_transformed_alone(rng):
    layer = FeedForward(D, F)
    x, order = rng.normal(size=(B, T, D)).astype("float32"), rng.permutation(T)
    assert np.allclose(np.asarray(layer(x))[:, order], layer(x[:, order]), atol=1e-6)


def test_training_drops_inner_activations_and_doubles_the_others_at_one_half():
    layer = FeedForward(D, F, dropout=0.5)
    layer.build()
    for weight, value in zip(
        layer.weights[:4], (np.zeros((D, F)), np.ones(F), np.ones((F, D)), np.zeros(D)), strict=True
    ):
        weight.assign(value)  # every inner activation is 1, every output their sum
    x = np.ones((B, T, D), "float32")
    assert np.all(np.asarray(layer(x)) == F)
    kept = np.asarray(layer(x, training=True)) / 2
    assert np.all(kept == np.round(kept)) and 0 < kept.min() < kept.max() < F
