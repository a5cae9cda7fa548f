"""Masks that look like chance."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.dropout import Dropout, random_bits
from keras_transformer.training.strategy import make_strategy

SIZE = 200_003


def bits(seed, counter=0, size=SIZE):
    return random_bits((size,), tf.constant([seed, counter], tf.uint32)).numpy()


def is_chance(hits, share, number):
    """Whether so many of `number` fit to a share: within five standard deviations."""
    return abs(hits - share * number) < 5 * np.sqrt(share * (1 - share) * number)


def test_every_bit_is_set_half_of_the_time():
    for seed in (0, 1, 2**31, 2**32 - 1):
        found = bits(seed)
        assert all(is_chance(np.count_nonzero(found >> bit & 1), 0.5, SIZE) for bit in range(32))


def test_values_are_spread_evenly():
    counts = np.bincount(bits(7) >> 24, minlength=256)
    chi_squared = ((counts - SIZE / 256) ** 2 / (SIZE / 256)).sum()
    assert 255 - 5 * np.sqrt(2 * 255) < chi_squared < 255 + 5 * np.sqrt(2 * 255)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    "pair",
    [
        lambda: (bits(3, 8), bits(3, 9)),  # two steps
        lambda: (bits(3, 0), bits(3, 4096)),
        lambda: (bits(3, 8), bits(4, 8)),  # two layers
        lambda: (bits(3, 4), bits(4, 3)),
        lambda: (bits(5)[:-1], bits(5)[1:]),  # neighbours
        lambda: (bits(5)[:-256], bits(5)[256:]),
        lambda: (bits(5)[:-4096], bits(5)[4096:]),
    ],
)
def test_one_mask_says_nothing_about_another(pair, rate):
    a, b = (mask < rate * 2**32 for mask in pair())
    assert is_chance(np.count_nonzero(a & b), rate**2, len(a))


def test_steps_one_after_the_other_drop_an_element_as_often_as_chance():
    dropped = np.stack([bits(11, step, 1000) < 0.1 * 2**32 for step in range(1000)])
    assert is_chance(dropped.sum(), 0.1, dropped.size)
    assert 0.9 < dropped.sum(axis=0).std() / np.sqrt(1000 * 0.09) < 1.1  # by element, over the steps
    assert 0.9 < dropped.sum(axis=1).std() / np.sqrt(1000 * 0.09) < 1.1  # by step, over the elements


def test_a_share_is_dropped_and_the_others_are_scaled_up():
    layer = Dropout(0.3, seed=5)
    found = layer(tf.ones((100, 7, 113)), training=True).numpy()
    assert set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.7)}
    assert is_chance(np.count_nonzero(found == 0), 0.3, found.size)


def test_every_call_draws_anew_and_the_seed_repeats_it():
    first, second = Dropout(0.3, seed=5), Dropout(0.3, seed=5)
    x = tf.ones((3, 5, 7))
    drawn = [first(x, training=True).numpy() for _ in range(3)]
    assert not np.array_equal(drawn[0], drawn[1])
    for expected in drawn:
        np.testing.assert_array_equal(second(x, training=True), expected)


def test_inference_and_rate_zero_change_nothing():
    x = tf.ones((3, 5))
    assert Dropout(0.5)(x) is x
    assert Dropout(0.0)(x, training=True) is x


def test_the_gradient_goes_where_the_elements_went_and_xla_draws_the_same():
    layer, again, x = Dropout(0.4, seed=1), Dropout(0.4, seed=1), tf.ones((11, 13))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    np.testing.assert_allclose(tape.gradient(y, x), y, rtol=1e-6)
    compiled = tf.function(lambda x: again(x, training=True), jit_compile=True)
    np.testing.assert_array_equal(compiled(x), y)


def test_every_replica_has_a_mask_of_its_own_and_the_first_that_of_one_device():
    x = tf.ones((101, 103))
    alone = Dropout(0.4, seed=1)(x, training=True)
    strategy = make_strategy("mirrored")
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        layer = Dropout(0.4, seed=1)
    masks = []
    for _ in range(3):  # replica 1 must not have at one call what replica 0 has at another
        drawn = strategy.experimental_local_results(strategy.run(lambda: layer(x, training=True)))
        if not masks:
            np.testing.assert_array_equal(drawn[0], alone)
        masks += [np.asarray(each) == 0 for each in drawn]
    for first, second in itertools.combinations(masks, 2):
        assert is_chance(np.count_nonzero(first & second), 0.4**2, first.size)


def test_elements_are_dropped_one_by_one():
    with pytest.raises(ValueError, match=r"noise_shape=\(None, 1\)"):
        Dropout(0.4, noise_shape=(None, 1))


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan")])
def test_a_rate_that_is_none_below_one_is_refused(rate):
    with pytest.raises(ValueError, match=rf"less than 1. Received: rate={rate}"):
        Dropout(rate)


def test_bfloat16_stays_bfloat16():
    layer = Dropout(0.4, dtype=keras.DTypePolicy("mixed_bfloat16"))
    assert layer(tf.ones((3, 5)), training=True).dtype == tf.bfloat16
