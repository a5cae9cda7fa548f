import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import attention
from keras_transformer.layers.attention import MultiHeadAttention, attention_weights, record_attention
from keras_transformer.layers.cache import KVCache
from tests import reference
from tests.small import randomise

B, T, S, D, H = 3, 7, 11, 26, 2
WIDTHS = pytest.mark.parametrize(("d_k", "d_v"), [(13, 13), (5, 17)])
SCORINGS = pytest.mark.parametrize("scoring", ["scaled_dot_product", "dot_product", "additive"])


def layer(**options):
    made = MultiHeadAttention(H, D, **{"d_k": 5, "d_v": 17, **options})
    made.build()
    randomise(made)
    return made


def projections(made):
    return {"query": made.query, "key": made.key, "value": made.value, "output": made.output_projection}


@pytest.fixture
def query(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


@pytest.fixture
def memory(rng):
    return rng.normal(size=(B, S, D)).astype("float32")


@pytest.fixture
def mask(rng):
    mask = rng.random((B, T, S)) < 0.5
    mask[:, :, 3] = True  # nobody may be left without a key
    return mask


@WIDTHS
def test_it_equals_the_attention_of_keras_on_copied_weights(query, memory, mask, d_k, d_v):
    ours = layer(d_k=d_k, d_v=d_v)
    theirs = keras.layers.MultiHeadAttention(H, d_k, d_v, use_bias=False)
    theirs.build(query.shape, memory.shape)
    theirs.set_weights(
        [weight.numpy().reshape(w.shape) for weight, w in zip(ours.weights, theirs.weights, strict=True)]
    )
    assert np.allclose(ours(query, memory, mask), theirs(query, memory, attention_mask=mask), atol=1e-5)


@WIDTHS
@SCORINGS
def test_it_equals_the_reference(query, memory, mask, d_k, d_v, scoring):
    ours = layer(d_k=d_k, d_v=d_v, scoring=scoring)
    weights = {name: layer.kernel.numpy() for name, layer in projections(ours).items()}
    weights["score"] = ours.score_vector.numpy() if scoring == "additive" else None
    expected = [
        reference.multi_head_attention(weights, *row, num_heads=H, scoring=scoring)
        for row in zip(query, memory, mask, strict=True)
    ]
    assert np.allclose(ours(query, memory, mask), expected, atol=1e-5)


@SCORINGS
def test_the_scores_are_those_of_the_reference(rng, scoring):
    query, key = rng.normal(size=(B, H, T, 5)).astype("float32"), rng.normal(size=(B, H, S, 5)).astype("float32")
    vector = rng.normal(size=(H, 5)).astype("float32")
    own = [vector] if scoring == "additive" else []
    scores = attention.SCORINGS[scoring](query, KVCache(key, None), *own)
    assert scores.shape == (B, H, T, S)
    for b, h in np.ndindex(B, H):
        expected = reference.compatibility(query[b, h], key[b, h], scoring, vector[h])
        assert np.allclose(scores[b, h], expected, atol=1e-5)


def test_weights_sum_to_one_over_the_allowed_keys_and_are_zero_elsewhere(rng, mask):
    weights = np.asarray(attention_weights(rng.normal(size=(B, H, T, S)).astype("float32"), mask))
    assert np.allclose(weights.sum(-1), 1, atol=1e-6)
    allowed = np.broadcast_to(mask[:, None], weights.shape)
    assert np.all(weights[~allowed] == 0) and np.all(weights[allowed] > 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_weights_are_computed_in_float32_or_more(dtype):
    scores = tf.cast(tf.reshape(tf.range(S), (1, 1, 1, S)), dtype)
    assert attention_weights(scores, np.ones((1, 1, S), bool)).dtype == ("float64" if dtype == "float64" else "float32")


@pytest.mark.parametrize("size", [1e4, -1e4, 3e38, -3e38])
def test_scores_of_any_size_leave_masked_keys_without_weight(size):
    scores = np.full((1, 1, 1, S), size, "float32")
    mask = np.arange(S)[None, None] < 3
    assert np.allclose(attention_weights(scores, mask), np.where(mask, 1 / 3, 0)[None], atol=1e-6)


def test_a_query_that_may_attend_to_nothing_has_finite_weights_and_gradients():
    scores = tf.random.stateless_normal((1, 1, 2, S), (1, 2))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        weights = attention_weights(scores, np.zeros((1, 1, S), bool))
        total = tf.reduce_sum(weights**2)
    assert np.allclose(weights, 1 / S)
    assert np.all(np.asarray(tape.gradient(total, scores)) == 0)


def test_a_call_is_attend_after_project(query, memory, mask):
    ours = layer()
    cache = ours.project(memory)
    assert cache.key.shape == (B, H, S, 5) and cache.value.shape == (B, H, S, 17)
    assert np.array_equal(ours(query, memory, mask), ours.attend(query, cache, mask))


@pytest.mark.parametrize("scoring", ["scaled_dot_product", "additive"])
def test_a_half_builds_the_layer(query, memory, mask, scoring):
    ours = MultiHeadAttention(H, D, d_k=5, d_v=17, scoring=scoring)
    cache = ours.project(memory)
    assert np.array_equal(ours(query, memory, mask), ours.attend(query, cache, mask))
    MultiHeadAttention(H, D, d_k=5, d_v=17, scoring=scoring).attend(query, cache, mask)


@pytest.mark.parametrize("wrong", [lambda mask: mask[:, 0], lambda mask: mask.astype("int32"), lambda mask: None])
def test_what_is_no_mask_is_refused(query, memory, mask, wrong):
    with pytest.raises(
        ValueError, match=r"`mask` must be boolean, of shape \(B or 1, queries or 1, keys\)\. Received: "
    ):
        layer()(query, memory, wrong(mask))


def test_there_are_four_matrices_and_no_biases():
    assert [weight.shape for weight in layer().weights] == [(D, H * 5), (D, H * 5), (D, H * 17), (H * 17, D)]


def test_additive_scoring_adds_a_vector_a_head():
    assert len(layer(scoring="additive").weights) == 5
    assert layer(scoring="additive").score_vector.shape == (H, 5)


def test_training_drops_attention_weights_and_doubles_the_others_at_one_half(query, memory):
    ours = MultiHeadAttention(1, D, d_k=5, d_v=17, dropout=0.5)
    only_key = np.arange(S)[None, None] == 3
    whole, trained = (np.asarray(ours(query, memory, only_key, training=training)) for training in (False, True))
    dropped = np.all(trained == 0, axis=-1)  # (B, T)
    assert 0 < dropped.sum() < B * T
    assert np.allclose(trained[~dropped], 2 * whole[~dropped], atol=1e-5)


def test_a_record_holds_layer_and_weights_of_every_attention_inside_it_and_of_none_outside(query, memory, mask):
    first, second = layer(), layer()
    with record_attention() as record:
        first(query, memory, mask)
        second(query, memory, mask)
    second(query, memory, mask)
    assert [owner for owner, _ in record] == [first, second]
    assert all(weights.shape == (B, H, T, S) for _, weights in record)


def test_a_record_ends_when_its_block_fails(query, memory, mask):
    with pytest.raises(ZeroDivisionError), record_attention() as record:
        raise ZeroDivisionError
    layer()(query, memory, mask)
    assert record == []


def test_a_record_inside_another_takes_over_until_it_ends(query, memory, mask):
    ours = layer()
    with record_attention() as outer:
        ours(query, memory, mask)
        with record_attention() as inner:
            ours(query, memory, mask)
        ours(query, memory, mask)
    assert (len(outer), len(inner)) == (2, 1)
