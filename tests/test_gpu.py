"""What is told to TensorFlow where there is a GPU holds there, and without one nothing is told."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from keras_transformer.gpu import add_in_order, multiply_in_float32
from keras_transformer.training.workdir import Workdir
from keras_transformer.translator import Translator
from tests.training.runs import configuration, new_run


def multiplies_in_float32():
    return not tf.config.experimental.tensor_float_32_execution_enabled()


def test_only_where_there_is_a_gpu_something_is_told(gpus):
    multiply_in_float32()
    add_in_order()
    assert not multiplies_in_float32() and not config.is_op_determinism_enabled()
    gpus.append("a GPU")
    multiply_in_float32()
    add_in_order()
    assert multiplies_in_float32() and config.is_op_determinism_enabled()


def test_a_translator_multiplies_in_float32(gpus, finished_run):
    gpus.append("a GPU")
    Translator.load(finished_run)
    assert multiplies_in_float32() and not config.is_op_determinism_enabled()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_run_adds_in_order_if_it_is_to(gpus, tmp_path, deterministic):
    gpus.append("a GPU")
    workdir = Workdir(tmp_path / "run")
    new_run(configuration(**{"train.deterministic": str(deterministic).lower()}), workdir)
    workdir.unlock()
    assert multiplies_in_float32() and config.is_op_determinism_enabled() == deterministic


@pytest.mark.gpu
@pytest.mark.parametrize("xla", [False, True])
def test_products_keep_the_digits_of_float32(rng, xla):
    x, y = rng.normal(size=(2, 257, 257))
    product = tf.function(tf.matmul, jit_compile=xla)
    np.testing.assert_allclose(product(np.float32(x), np.float32(y)), x @ y, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("xla", [False, True])
def test_rows_that_meet_are_added_up_to_the_same_bits_every_time(rng, xla):
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
