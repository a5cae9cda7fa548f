import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.embedding import (
    LearnedPositions,
    TokenEmbedding,
    sinusoidal_positions,
)
from tests.reference import sinusoids

V, D, LIMIT = 31, 23, 13


@pytest.fixture(scope="module")
def embedding():
    layer = TokenEmbedding(V, D)
    layer.build()
    return layer


@pytest.fixture(scope="module")
def learned():
    layer = LearnedPositions(LIMIT, D)
    layer.build()
    return layer


def test_sinusoids_are_the_formula_of_the_paper():
    assert np.allclose(sinusoidal_positions(np.arange(97), 26), sinusoids(97, 26), rtol=0, atol=1e-7)


@pytest.mark.parametrize("d_model", [0, 5])
def test_sinusoids_of_an_odd_width_are_refused(d_model):
    with pytest.raises(ValueError, match=f"`d_model` must be even for sinusoids. Received: {d_model}."):
        sinusoidal_positions(np.arange(10), d_model)


@pytest.mark.parametrize("position", [5_003, 99_991])
def test_sinusoids_are_exact_far_beyond_any_sentence(position):
    rates = 10000.0 ** (-np.arange(0, 26, 2) / 26)
    (vector,) = np.asarray(sinusoidal_positions(np.array([position]), 26))
    assert np.allclose(vector[0::2], np.sin(position * rates), rtol=0, atol=1e-7)
    assert np.allclose(vector[1::2], np.cos(position * rates), rtol=0, atol=1e-7)


def test_the_sinusoids_of_a_position_do_not_depend_on_which_others_are_asked_for():
    assert np.array_equal(
        sinusoidal_positions(np.array([11, 2]), 26), np.asarray(sinusoidal_positions(range(12), 26))[[11, 2]]
    )


def test_an_embedding_is_its_row_times_the_root_of_d_model(embedding):
    ids = np.array([[3, 0, 29], [30, 3, 1]])
    assert np.allclose(embedding(ids), np.asarray(embedding.embeddings)[ids] * np.sqrt(D), rtol=1e-6)


def test_the_same_matrix_gives_the_logits_without_the_factor(embedding, rng):
    x = rng.normal(size=(2, 5, D)).astype("float32")
    assert np.allclose(embedding.logits(x), x @ np.asarray(embedding.embeddings).T, atol=1e-5)


def test_a_fresh_embedding_has_entries_of_about_unit_size_after_the_factor():
    layer = TokenEmbedding(997, 101)
    assert np.std(layer(np.arange(997))) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(("policy", "logits"), [("float32",) * 2, ("mixed_bfloat16", "float32"), ("float64",) * 2])
def test_vectors_have_the_precision_of_the_weights_and_logits_at_least_float32(policy, logits):
    layer = TokenEmbedding(V, D, dtype=policy)
    vectors = layer(np.array([[3, 5]]))
    assert vectors.dtype == layer.variable_dtype
    assert layer.logits(tf.cast(vectors, layer.compute_dtype)).dtype == logits


def test_logits_build_the_embedding():
    assert TokenEmbedding(V, D).logits(np.ones((2, 3, D), "float32")).shape == (2, 3, V)


def test_learned_positions_are_the_rows_of_a_table(learned):
    positions = np.array([5, 0, LIMIT - 1])
    for given in positions, positions[None]:
        assert np.array_equal(learned(given), np.asarray(learned.table)[given])


def test_learned_positions_beyond_the_table_fail_where_the_length_is_known(learned):
    with pytest.raises(ValueError, match=rf"end at {LIMIT} \(`max_positions`\). Received: a sequence of {LIMIT + 1}"):
        learned(np.arange(LIMIT + 1))


def test_learned_positions_beyond_the_table_fail_one_at_a_time(learned):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"end at {LIMIT} "):
        learned(np.array([LIMIT]))


def test_learned_positions_beyond_the_table_fail_in_a_graph_of_unknown_length(learned):
    lookup = tf.function(learned, input_signature=[tf.TensorSpec((None,), "int32")])
    assert np.array_equal(lookup(np.arange(LIMIT, dtype="int32")), learned.table)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"end at {LIMIT} "):
        lookup(np.arange(LIMIT + 1, dtype="int32"))


def test_learned_positions_beyond_the_table_are_not_a_number_under_xla_which_cannot_fail(learned):
    lookup = tf.function(learned, input_signature=[tf.TensorSpec((None,), "int32")], jit_compile=True)
    vectors = np.asarray(lookup(np.arange(LIMIT + 1, dtype="int32")))
    assert np.array_equal(vectors[:LIMIT], learned.table)
    assert np.isnan(vectors[LIMIT]).all()


def test_the_table_is_trained(learned):
    with tf.GradientTape() as tape:
        total = keras.ops.sum(learned(np.arange(3)))
    gradient = tf.convert_to_tensor(tape.gradient(total, learned.table.value))
    assert np.array_equal(np.asarray(gradient)[:, 0], [1, 1, 1] + [0] * (LIMIT - 3))
