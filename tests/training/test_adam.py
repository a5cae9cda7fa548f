"""Keras's Adam in one operation."""

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.training.adam import FusedAdam

SETTINGS = dict(beta_1=0.9, beta_2=0.98, epsilon=1e-9)


def trained(optimizer, rng, num_steps=7):
    weights = [keras.Variable(rng.normal(size=shape), dtype="float32") for shape in ((5, 7), (11,))]
    optimizer.build(weights)
    for step in range(num_steps):
        gradients = [tf.constant(rng.normal(size=weight.shape) * 10.0**-step, tf.float32) for weight in weights]
        for weight, gradient in zip(weights, gradients, strict=True):
            optimizer.update_step(gradient, weight, tf.constant(0.01 / (1 + step)))
        optimizer.iterations.assign_add(1)
    return [variable.numpy() for variable in (*weights, *optimizer.variables)]


def test_weights_and_moments_are_those_of_keras():
    ours, theirs = (
        trained(make(0.1, **SETTINGS), np.random.default_rng(3)) for make in (FusedAdam, keras.optimizers.Adam)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-9)
