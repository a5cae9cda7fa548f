"""A cache keeps what is written, and is read by products. (All kinds alike: test_search_caches.py.)"""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.cache import KVCache

B, H, T, S = 3, 2, 7, 11
WIDTHS = (5, 17)


@pytest.fixture
def full(rng):
    return KVCache(*(tf.constant(rng.normal(size=(B, H, S, width))) for width in WIDTHS))


def test_it_is_read_by_the_two_products_of_attention(rng, full):
    query, weights = rng.normal(size=(B, H, T, 5)), rng.normal(size=(B, H, T, S))
    np.testing.assert_allclose(full.dot_product(query), np.einsum("bhtk,bhsk->bhts", query, full.key))
    np.testing.assert_allclose(full.weighted_sum(weights), np.einsum("bhts,bhsv->bhtv", weights, full.value))


def test_an_empty_one_grows_by_the_positions_of_some_steps():
    cache = KVCache.start(B, H, 0, WIDTHS, "float32").grow(4, width=3)
    assert cache.key.shape == (B, H, 12, 5) and cache.value.shape == (B, H, 12, 17)
    assert not np.any(cache.key) and not np.any(cache.value)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_it_is_filled_in_a_loop(full, jit_compile):
    @tf.function(jit_compile=jit_compile, autograph=False)
    def fill():
        def body(t, cache):
            fresh = KVCache(*(tf.gather(part, [t], axis=2) for part in full))
            return t + 1, cache.write(fresh, cache.place(t, width=1))

        return tf.while_loop(lambda t, _: t < S, body, (0, KVCache.start(B, H, S, WIDTHS, "float64")))[1]

    assert all(np.array_equal(*parts) for parts in zip(fill(), full, strict=True))
