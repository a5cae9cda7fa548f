"""What is told to TensorFlow where there is a GPU holds there, and without one nothing is told."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from keras_transformer.gpu import add_in_order, multiply_in_float32


def multiplies_in_float32():
    return not tf.config.experimental.tensor_float_32_execution_enabled()


@pytest.fixture
def default():
    """TensorFlow as it comes."""
    before = multiplies_in_float32(), config.is_op_determinism_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(True)
    config.disable_op_determinism()
    yield
    tf.config.experimental.enable_tensor_float_32_execution(not before[0])
    (tf.config.experimental.enable_op_determinism if before[1] else config.disable_op_determinism)()


@pytest.mark.parametrize("gpus", [[], ["a GPU"]])
def test_only_where_there_is_a_gpu_something_is_told(default, monkeypatch, gpus):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus if kind == "GPU" else [])
    multiply_in_float32()
    add_in_order()
    assert multiplies_in_float32() == config.is_op_determinism_enabled() == bool(gpus)


@pytest.mark.gpu
@pytest.mark.parametrize("xla", [False, True])
def test_products_keep_the_digits_of_float32(rng, xla):
    x, y = rng.normal(size=(2, 257, 257))
    product = tf.function(tf.matmul, jit_compile=xla)
    np.testing.assert_allclose(product(np.float32(x), np.float32(y)), x @ y, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("xla", [False, True])
def test_rows_that_meet_are_added_up_to_the_same_bits_every_time(default, rng, xla):
    add_in_order()
    rows, ids = np.float32(rng.normal(size=(40_000, 32))), rng.integers(0, 7, 40_000)

    @tf.function(jit_compile=xla)
    def gradient(rows):
        table = tf.zeros((7, 32))
        with tf.GradientTape() as tape:
            tape.watch(table)
            loss = tf.reduce_sum(tf.gather(table, ids) * rows)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    once = gradient(rows)
    np.testing.assert_allclose(once, np.stack([rows[ids == i].sum(0, np.float64) for i in range(7)]), atol=1e-2)
    for _ in range(10):
        np.testing.assert_array_equal(gradient(rows), once)
