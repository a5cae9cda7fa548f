import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.config import MAX_ALPHA, MAX_SEARCH_LENGTH
from keras_transformer.decoding.scoring import Blocks, length_penalty, log_normaliser, top_k, top_k_of_rows

XLA = functools.partial(tf.function, jit_compile=True)


def test_the_length_penalty_is_that_of_wu_et_al():
    np.testing.assert_allclose(length_penalty(tf.constant([1, 7, 19]), 0.6), [1.0, 2**0.6, 4**0.6], rtol=1e-6)
    np.testing.assert_array_equal(length_penalty(tf.constant([0, 1, 50]), 0.0), [1, 1, 1])
    longest = 2 * MAX_SEARCH_LENGTH  # of what is read, and as many besides
    assert np.isfinite(length_penalty(tf.constant(longest), MAX_ALPHA))


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


def likelihood(values, before, normalisers):
    return before + tf.minimum(values - normalisers, 0.0)


@pytest.mark.parametrize("run", [lambda f: f, tf.function, XLA], ids=["eager", "graph", "xla"])
@pytest.mark.parametrize("size", [7, 997, 2000])  # all at once; blocks with and without a rest
@pytest.mark.parametrize("spread", [3, 10**6])  # many ties, few
def test_the_best_of_several_rows_are_the_best_of_all_their_scores(size, spread, run, rng):
    values = rng.integers(0, spread, (4, 3, size)).astype("float32")
    before = rng.integers(-2, 1, (4, 3)).astype("float32")
    normalisers = rng.integers(spread // 2, spread, (4, 3)).astype("float32")  # many scores are cut off at `before`
    before[0, 1] = -np.inf  # a row of which nothing may come
    values[1, 2] = np.nan
    values[2, :, : size - 1] = -np.inf
    before[3] = before[3, :1]
    scores = np.nan_to_num(likelihood(values, before[:, :, None], normalisers[:, :, None]), nan=-np.inf, neginf=-np.inf)
    expected = tf.math.top_k(scores.reshape(4, -1), 11)
    find = run(lambda: top_k_of_rows(Blocks.of(tf.constant(values)), 11, likelihood, (before, normalisers)))
    best, rows, ids = find()
    np.testing.assert_array_equal(best, expected.values)
    found = expected.values > -np.inf  # of what has no score some come, no matter which
    np.testing.assert_array_equal((rows * size + ids)[found], expected.indices[found])
    assert np.all((rows >= 0) & (rows < 3) & (ids >= 0) & (ids < size))


@pytest.mark.parametrize("run", [lambda f: f, tf.function, XLA], ids=["eager", "graph", "xla"])
@pytest.mark.parametrize("size", [3, 97, 997, 8000])  # less than a block, blocks with and without a rest
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_normaliser_is_the_log_of_the_sum_of_all_exponentials(size, scale, run, rng):
    logits = (rng.normal(size=(2, 3, size)) * scale).astype("float32")
    logits[0, 0, 1:] = -np.inf
    logits[1, 0, : size - 1] = -np.inf
    logits[1, 1, 1] = 3e38
    maximum = logits.max(-1, keepdims=True).astype("float64")
    expected = maximum[..., 0] + np.log(np.exp(logits - maximum).sum(-1))
    found = run(lambda x: log_normaliser(Blocks.of(x)))(tf.constant(logits)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-6)
    assert np.all(found >= maximum[..., 0])  # or log P would be above 0


@pytest.mark.parametrize("run", [lambda f: f, tf.function, XLA], ids=["eager", "graph", "xla"])
@pytest.mark.parametrize("size", [3, 997, 8000])
def test_the_normaliser_of_what_is_no_distribution_is_not_finite(size, run, rng):
    logits = rng.normal(size=(2, 2, size)).astype("float32")
    logits[0, 0, 1] = np.nan
    logits[0, 1] = -np.inf
    logits[1, 0, size - 1] = np.inf
    found = run(lambda x: log_normaliser(Blocks.of(x)))(tf.constant(logits))
    np.testing.assert_array_equal(np.isfinite(found), [[False, False], [False, True]])


@pytest.mark.parametrize("size", [899, 997, 8000])
def test_the_normaliser_of_a_row_is_the_same_in_every_batch_but_for_rounding(size, rng):
    logits = rng.normal(size=(33, 4, size)).astype("float32")
    normalisers = tf.function(lambda x: log_normaliser(Blocks.of(x)))
    together = normalisers(tf.constant(logits))
    for row in 0, 17, 32:
        np.testing.assert_allclose(together[row], normalisers(tf.constant(logits[row : row + 1]))[0], rtol=5e-7)
    assert normalisers(tf.zeros((0, 4, size))).shape == (0, 4)


@pytest.mark.cpu
def test_xla_finds_the_maxima_of_blocks_once_for_the_best_and_for_the_log_sum_exp():
    def best(logits):
        blocks = Blocks.of(logits)
        return top_k_of_rows(blocks, 11, likelihood, (tf.zeros((1, 4)), log_normaliser(blocks)))

    program = XLA(best, autograph=False).experimental_get_compiler_ir(tf.ones((1, 4, 8000)))("optimized_hlo")
    main = program[program.index("ENTRY") :]
    [logits] = re.findall(r"(\S+) = f32\[1,4,8000\]\S* parameter", main)
    readers = [
        line for line in main.splitlines() if re.search(rf"\({re.escape(logits)}[,)]|, {re.escape(logits)}[,)]", line)
    ]
    assert len(readers) == 3, "\n".join(readers)  # maxima of blocks, exponentials, the chosen blocks
