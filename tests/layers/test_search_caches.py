"""Kinds of caches that keep the same keys and values as the plain one."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.cache import KVCache
from keras_transformer.layers.search_caches import KINDS, FewRowsKVCache, GraphKVCache, XLAKVCache

B, H, T, S = 3, 2, 7, 11
WIDTHS = (5, 17)
ALL = pytest.mark.parametrize("kind", [*KINDS.values(), FewRowsKVCache])


def plain(rng, *lengths):
    return [KVCache(*(tf.constant(rng.normal(size=(B, H, n, width))) for width in WIDTHS)) for n in lengths]


def values(cache):
    return cache.weighted_sum(tf.eye(cache.key_by_position.shape[2], batch_shape=(B, H), dtype=tf.float64))


def running(kind, function):
    """As who runs such a cache does: XLA, a graph, or nobody in particular."""
    if kind is KVCache:
        return function
    return tf.function(function, jit_compile=kind is XLAKVCache, autograph=False)


@ALL
def test_it_keeps_the_keys_and_values_of_a_plain_one(rng, kind):
    (cache,) = plain(rng, S)
    kept = kind.of(cache)
    assert type(kept) is kind
    assert np.array_equal(kept.key_by_position, cache.key) and np.array_equal(values(kept), cache.value)


@ALL
def test_the_dot_product_is_that_of_every_query_with_every_key(rng, kind):
    (cache,), query = plain(rng, S), rng.normal(size=(B, H, T, 5))
    np.testing.assert_allclose(
        kind.of(cache).dot_product(tf.constant(query)), np.einsum("bhtk,bhsk->bhts", query, cache.key)
    )


@ALL
@pytest.mark.parametrize("index", [0, 2, np.int32(2), tf.constant(2)], ids=["first", "int", "numpy", "tensor"])
def test_writing_replaces_those_slots_and_no_others(rng, index, kind):
    old, fresh = plain(rng, 8, 2)
    before = [np.array(part) for part in old]

    def write(old, fresh, index):
        cache = kind.of(old)
        after = cache.write(fresh, cache.place(index, width=2))
        assert type(after) is kind
        return after.key_by_position, values(after)

    for expected, new, written in zip(before, fresh, running(kind, write)(old, fresh, index), strict=True):
        expected[:, :, 2 * int(index) : 2 * int(index) + 2] = new
        assert np.array_equal(written, expected)


@ALL
def test_a_loop_fills_an_empty_one_slot_by_slot(rng, kind):
    (full,) = plain(rng, S)

    def fill():
        def body(t, cache):
            fresh = KVCache(*(tf.gather(part, [t], axis=2) for part in full))
            return t + 1, cache.write(fresh, cache.place(t, width=1))

        empty = kind.start(B, H, S, WIDTHS, tf.float64)
        filled = tf.while_loop(lambda t, _: t < S, body, (0, empty))[1]
        return empty.key_by_position.shape, filled.key_by_position, values(filled)

    shape, *filled = running(kind, fill)()
    assert tuple(shape) == (B, H, S, 5)
    assert all(np.array_equal(*parts) for parts in zip(filled, full, strict=True))


@ALL
@pytest.mark.parametrize("sizes", [(2,), (3,), (4, 7), (5, 5, 6)], ids=str)
@pytest.mark.parametrize("first_steps", [1, 20])
def test_one_that_grows_from_nothing_keeps_what_is_written(rng, kind, sizes, first_steps):
    width = 3
    (full,) = plain(rng, sizes[-1] * width)

    def write(t, cache):
        fresh = (tf.slice(part, (0, 0, t * width, 0), (B, H, width, part.shape[3])) for part in full)
        return t + 1, cache.write(KVCache(*fresh), cache.place(t, width))

    def fill():
        t, cache, has = tf.constant(0), kind.start(B, H, 0, WIDTHS, tf.float64), 0
        for number, size in enumerate(sizes, start=1):
            cache, has = cache.grow(size - has, width), size
            until = size if number == len(sizes) else min(size, first_steps)  # some grow before they are full
            t, cache = tf.while_loop(lambda t, _, until=until: t < until, write, (t, cache))
        return cache.key_by_position, values(cache), cache.dot_product(full.key), cache.weighted_sum(scores)

    scores = tf.matmul(full.key, full.key, transpose_b=True)
    key, value, product, weighted_sum = running(kind, fill)()
    assert np.array_equal(key, full.key) and np.array_equal(value, full.value)
    np.testing.assert_allclose(product, scores)
    np.testing.assert_allclose(weighted_sum, np.matmul(scores, full.value))


@pytest.mark.parametrize(
    ("dtype", "width", "sizes", "longer"),
    [("float32", 3, (15, 12), (21, 21)), ("float32", 1, (9,), (14,)), ("bfloat16", 3, (27,), (42,))],
)
def test_several_beams_have_two_arrays_under_xla_but_of_16_bits(dtype, width, sizes, longer):
    cache = XLAKVCache.start(B, H, 0, WIDTHS, dtype).grow(9, width)
    assert tuple(value.shape[2] for value in cache.value) == tuple(key.shape[3] for key in cache.key) == sizes
    assert tuple(value.shape[2] for value in cache.grow(5, width).value) == longer


def test_caches_of_one_shape_that_are_overwritten_are_not_the_same(rng):
    _, fresh = plain(rng, 8, 2)

    @tf.function(autograph=False)
    def fill():
        first, second = (GraphKVCache.start(B, H, 8, WIDTHS, tf.float64) for _ in range(2))
        return first.write(fresh, first.place(1, width=2)), second

    written, untouched = fill()
    assert np.array_equal(written.key[:, :, 2:4], fresh.key) and np.array_equal(written.value[:, :, 2:4], fresh.value)
    assert not np.any(untouched.key) and not np.any(untouched.value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@ALL
def test_swapping_is_transposing_and_swapping_twice_changes_nothing(rng, kind, dtype):
    x = tf.cast(rng.normal(size=(B, T, H, 5)), dtype)
    assert np.array_equal(kind.swapped(x), np.swapaxes(x, 1, 2)) and np.array_equal(kind.swapped(kind.swapped(x)), x)


@ALL
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_every_kind_reads_the_same(rng, kind, queries, dtype):
    cache = KVCache(*(tf.cast(part, dtype) for part in plain(rng, S)[0]))
    query, allowed = tf.cast(rng.normal(size=(B, H, queries, 5)), dtype), rng.random((B, 1, queries, S)) < 0.5
    allowed[0] = False  # a query that may attend to nothing

    def read(kind):
        scores = tf.where(allowed, kind.of(cache).dot_product(query), query.dtype.min)
        return kind.of(cache).weighted_sum(kind.softmax(scores))

    # As functions: TensorFlow has no kernel of 16 bits for everything that XLA has.
    found, expected = running(kind, lambda: read(kind))(), read(KVCache)
    atol = {"float64": 1e-12, "float32": 1e-5}.get(dtype, 0.1)
    np.testing.assert_allclose(tf.cast(found, "float64"), tf.cast(expected, "float64"), atol=atol)


@pytest.mark.parametrize(("kind", "queries"), [(FewRowsKVCache, 4), (FewRowsKVCache, 1), (GraphKVCache, 1)])
def test_few_rows_are_read_by_operations_that_onednn_does_not_have(rng, kind, queries):
    (cache,) = plain(rng, S)

    @tf.function(autograph=False)
    def read(query):
        return kind.of(cache).weighted_sum(kind.of(cache).dot_product(query))

    operations = read.get_concrete_function(tf.TensorSpec((B, H, queries, 5), tf.float64)).graph.get_operations()
    products = [operation.type for operation in operations if "MatMul" in operation.type]
    assert products == ["BatchMatMulV3"] * 2
