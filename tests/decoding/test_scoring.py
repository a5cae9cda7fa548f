import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.decoding.scoring import length_penalty, top_k

XLA = functools.partial(tf.function, jit_compile=True)


def test_the_length_penalty_is_that_of_wu_et_al():
    np.testing.assert_allclose(length_penalty(tf.constant([1, 7, 19]), 0.6), [1.0, 2**0.6, 4**0.6], rtol=1e-6)
    np.testing.assert_array_equal(length_penalty(tf.constant([0, 1, 50]), 0.0), [1, 1, 1])


@pytest.mark.parametrize("size", [3, 97, 997, 8000, 7919])  # with and without blocks, with and without a rest
@pytest.mark.parametrize("spread", [2, 3000, 10**6])  # nearly all ties, some, nearly none
@pytest.mark.parametrize("k", [1, 3, 11])
def test_the_best_of_blocks_are_the_best_of_all(size, spread, k, rng):
    values = rng.integers(0, spread, (5, size)).astype("float32")
    values[1] = -np.inf
    values[2, : size // 2] = -np.inf
    values[3, size // 3 :] = -np.inf
    k = min(k, size)
    expected = tf.math.top_k(values, k)
    for run in (lambda f: f, XLA) if size == 7919 and k == 11 else (lambda f: f,):
        best, ids = run(lambda: top_k(tf.constant(values), k))()
        np.testing.assert_array_equal(best, expected.values)
        np.testing.assert_array_equal(ids, expected.indices)


@pytest.mark.parametrize("size", [5, 97, 7919])
def test_nan_disturbs_no_other_row(size, rng):
    values = rng.normal(size=(3, size)).astype("float32")
    expected = tf.math.top_k(values[2:], 3)
    values[0, ::2] = np.nan
    values[1] = np.nan
    best, ids = top_k(tf.constant(values), 3)
    np.testing.assert_array_equal(best[2:], expected.values)
    np.testing.assert_array_equal(ids[2:], expected.indices)
    assert np.all((ids >= 0) & (ids < size))
