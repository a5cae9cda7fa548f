"""Keras's Adam and Muon, with Adam's update in one operation; and which weight has which update."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import TrainConfig, Transformer
from keras_transformer.training.optimizers import FusedAdam, Muon, make_optimizer, one_update
from keras_transformer.training.step import Trainee
from tests.small import SMALL, VARIANTS, V

ADAM = dict(beta_1=0.9, beta_2=0.98, epsilon=1e-9)
MUON = dict(adam_beta_1=0.9, adam_beta_2=0.98, epsilon=1e-9, weight_decay=None, adam_weight_decay=None)
SHAPES = {"kernel": (5, 7), "tall": (9, 4), "bias": (11,), "embedding": (13, 3)}
RATE = 0.01


def trained(optimizer, rng, num_steps=7):
    """Name -> weight, and the optimizer's own variables, after some steps."""
    weights = {n: keras.Variable(rng.normal(size=s), dtype="float32", name=n) for n, s in SHAPES.items()}
    optimizer.build(list(weights.values()))
    for step in range(num_steps):
        for weight in weights.values():
            gradient = tf.constant(rng.normal(size=weight.shape) * 10.0**-step, tf.float32)
            optimizer.update_step(gradient, weight, tf.constant(RATE / (1 + step)))
        optimizer.iterations.assign_add(1)
    return {n: weight.numpy() for n, weight in weights.items()}, [v.numpy() for v in optimizer.variables]


@pytest.mark.parametrize(
    "ours, theirs, settings",
    [(FusedAdam, keras.optimizers.Adam, ADAM), (Muon, keras.optimizers.Muon, MUON)],
    ids=["adam", "muon"],
)
def test_weights_and_moments_are_those_of_keras(ours, theirs, settings):
    (a, a_state), (b, b_state) = (trained(make(0.1, **settings), np.random.default_rng(3)) for make in (ours, theirs))
    for x, y in zip([*a.values(), *a_state], [*b.values(), *b_state], strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_the_weights_of_an_update_share_the_powers_of_beta(name):
    def step(optimizer, weights):
        for weight in weights:
            optimizer.update_step(tf.ones(weight.shape), weight, tf.constant(RATE))

    def step_of_all(*arguments):
        with one_update(arguments[0]):
            step(*arguments)

    found = {}
    for how in step, step_of_all:
        weights = [keras.Variable(np.ones(shape), dtype="float32", name=n) for n, shape in SHAPES.items()]
        optimizer = make_optimizer(name, 0.1)
        optimizer.build(weights)
        graph = tf.function(lambda: how(optimizer, weights)).get_concrete_function()  # noqa: B023 - called here
        for _ in range(3):
            graph()
            optimizer.iterations.assign_add(1)
        powers = sum(op.type == "Pow" for op in graph.graph.get_operations())
        found[how] = powers, [weight.numpy() for weight in weights]
    (many, expected), (few, weights) = found[step], found[step_of_all]
    assert many == 2 * (4 if name == "adam" else 2) and few == 2  # Muon leaves two to Adam
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_optimizer_makes_powers_of_its_own():
    other, found = make_optimizer("adam", 0.1), []
    other.iterations.assign(100)
    for context in contextlib.nullcontext(), one_update(other):
        weight = keras.Variable(np.ones(3), dtype="float32", name="bias")
        optimizer = make_optimizer("adam", 0.1)
        optimizer.build([weight])
        with context:
            optimizer.update_step(tf.ones(3), weight, tf.constant(RATE))
        found.append(weight.numpy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_gradients_may_be_accumulated_by_keras(name):
    made = {"adam": (FusedAdam, ADAM), "muon": (Muon, MUON)}[name]
    layer = keras.layers.Dense(2)
    model = keras.Sequential([keras.Input((3,)), layer])
    model.compile(made[0](0.1, gradient_accumulation_steps=2, **made[1]), "mse", jit_compile=False)
    before = layer.kernel.numpy()
    model.fit(np.ones((4, 3)), np.ones((4, 2)), batch_size=2, verbose=0)
    assert model.optimizer.iterations.numpy() == 1 and not np.allclose(layer.kernel.numpy(), before)


def test_muon_leaves_vectors_and_embeddings_to_adam():
    adam, _ = trained(make_optimizer("adam", 0.1), np.random.default_rng(3))
    muon, _ = trained(make_optimizer("muon", 0.1), np.random.default_rng(3))
    assert {name for name in SHAPES if np.array_equal(adam[name], muon[name])} == {"bias", "embedding"}


@pytest.mark.parametrize("shape", [(23, 23), (23, 47), (47, 23)])
def test_muon_moves_a_matrix_about_as_far_in_every_direction(shape):
    rng = np.random.default_rng(1)
    left, _, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    gradient = left * np.geomspace(1e-3, 1e-5, len(right)) @ right  # one direction has a hundred times the gradient
    weight = keras.Variable(np.zeros(shape), dtype="float32", name="kernel")
    optimizer = make_optimizer("muon", 0.1)
    optimizer.build([weight])
    optimizer.update_step(tf.constant(gradient, tf.float32), weight, tf.constant(RATE))
    moved = -weight.numpy() / (RATE * 0.2 * np.sqrt(max(shape)))  # the length of Adam's steps: Liu et al. 2025
    lengths = np.diag(left.T @ moved @ right.T)
    assert lengths.min() > 0.2  # five iterations: the shortest is not yet as long as the rest
    assert lengths.max() < 1.3
    np.testing.assert_allclose(left * lengths @ right, moved, atol=1e-3)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_muon_has_the_kernels_of_the_layers_and_nothing_else(options):
    model = Transformer(V, **SMALL | options)
    weights = model.trainable_variables
    optimizer = Trainee(model, TrainConfig(optimizer="muon")).optimizer
    kernels = {v.path for v, velocity in zip(weights, optimizer.adam_velocities, strict=True) if velocity is None}
    assert kernels == {v.path for v in weights if v.path.endswith("/kernel")}
    assert len(kernels) == 2 * 6 + 3 * 10
