"""Ids in, ids out: the questions that the Translator and the exported model have in common."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Transformer, inference
from keras_transformer.config import DecodeConfig
from keras_transformer.fast import products_by_xla, products_in_graph
from keras_transformer.fast.products_in_graph import by_graph_panels
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.model_products import keep_panels

SIZES = {"d_model": 12, "d_ff": 17, "num_heads": 3, "num_encoder_layers": 1, "num_decoder_layers": 2}
VOCAB_SIZE, EOS = 31, 3
DECODE = DecodeConfig(beam_width=3, extra_length=5)


@pytest.fixture(scope="module")
def model():
    """Ends sentences at once, later, and not before the limit: see the first test."""
    model = Transformer(VOCAB_SIZE, tied_embeddings="none", **SIZES)
    rng = np.random.default_rng(7)
    for weight in model.trainable_variables:  # larger than at the start, so that hypotheses differ
        weight.assign(rng.normal(0, 0.7, weight.shape))
    eos, shift = model.output_embedding.embeddings[EOS], model.decoder[-1].feed_forward_norm.layer_norm.beta
    shift.assign(shift + 2 * eos / tf.norm(eos))  # makes eos likelier everywhere
    return model


@pytest.fixture
def source_ids(rng):
    ids = rng.integers(4, VOCAB_SIZE, (5, 7)).astype(np.int32)
    for row, length in zip(ids, (7, 3, 1, 5, 0), strict=True):
        row[max(0, length - 1) :] = 0
        if length:
            row[length - 1] = 3
    return tf.constant(ids)


def rows(hypotheses):
    """The ids of each row's best hypothesis."""
    ids, lengths = hypotheses.ids[:, 0].numpy(), hypotheses.lengths[:, 0].numpy()
    return [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]


def test_the_sentences_of_these_tests_end_at_once_later_and_at_the_limit(model, source_ids):
    *found, nothing = rows(inference.search(model, source_ids, DECODE))
    ended = [len(ids) for ids in found if ids[-1] == EOS]
    assert 2 <= len(ended) < len(found) and min(ended) == 1 and max(ended) > 3 and not nothing


def test_the_log_probabilities_of_a_search_are_those_of_teacher_forcing(model, source_ids):
    found = inference.search(model, source_ids, DECODE, num_hypotheses=3)
    for place in range(3):
        exists = found.lengths[:, place] > 0
        again = tf.reduce_sum(inference.token_log_probs(model, source_ids, found.ids[:, place]), axis=1)
        np.testing.assert_allclose(again[exists], found.log_probs[:, place][exists], atol=1e-4)
    scores = found.scores.numpy()
    assert (scores[:, :-1] >= scores[:, 1:]).all()
    for ids, lengths in zip(found.ids[:2].numpy(), found.lengths[:2].numpy(), strict=True):
        assert lengths.min() > 0 and len({tuple(row) for row in ids}) == 3  # distinct


def test_the_memory_is_projected_once_a_search(model, source_ids, monkeypatch):
    projected, project = [], MultiHeadAttention.project

    def note(layer, *args):
        projected.append(layer)
        return project(layer, *args)

    monkeypatch.setattr(MultiHeadAttention, "project", note)
    inference.search(model, source_ids, DECODE)
    for block in model.decoder:
        assert projected.count(block.cross_attention) == 1 < 3 < projected.count(block.self_attention)


def test_a_sample_scores_as_teacher_forcing_says_whatever_the_temperature(model, source_ids):
    found = inference.sample(model, source_ids, DECODE, seeds=tf.range(5), temperature=tf.linspace(0.0, 2.0, 5))
    again = tf.reduce_sum(inference.token_log_probs(model, source_ids, found.ids[:, 0]), axis=1)
    np.testing.assert_allclose(again, found.log_probs[:, 0], atol=1e-4)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.5, 1.0), (2.0, 1.0), (1.0, 0.6)])
def test_pieces_are_drawn_as_temperature_and_top_p_say(model, source_ids, temperature, top_p):
    num_draws, bos = 1000, tf.constant([[2]])
    decode = DECODE.replace(top_p=top_p, extra_length=1)
    sample = tf.function(inference.sample, autograph=False)  # eagerly it draws one row after the other: half a minute
    sources = tf.repeat(source_ids[1:2, :3], num_draws, 0)
    found = sample(model, sources, decode, seeds=tf.range(num_draws), temperature=temperature)
    drawn = np.bincount(found.ids[:, 0, 0].numpy(), minlength=VOCAB_SIZE) / num_draws
    logits = model((source_ids[1:2, :3], bos))[0, 0].numpy() / temperature
    logits[[0, 2]] = -np.inf  # padding and the beginning of a sentence are never drawn
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    order = np.argsort(-expected)
    kept = order[: 1 + np.searchsorted(np.cumsum(expected[order]), top_p)]
    expected = np.where(np.isin(np.arange(VOCAB_SIZE), kept), expected, 0.0)
    np.testing.assert_allclose(drawn, expected / expected.sum(), atol=0.05)  # three deviations


def test_a_sample_without_temperature_is_a_beam_of_one(model, source_ids):
    drawn = inference.sample(model, source_ids, DECODE, seeds=1, temperature=0.0)
    best = inference.search(model, source_ids, DECODE.replace(beam_width=1))
    assert rows(drawn) == rows(best)
    np.testing.assert_allclose(drawn.scores, best.scores, atol=1e-4)
    assert np.abs(drawn.scores - drawn.log_probs).max() > 0.1  # they are divided by the length penalty


def test_every_sentence_has_its_own_limit(model, source_ids):
    lengths = tf.math.count_nonzero(source_ids, axis=1).numpy()
    found = inference.search(model, source_ids, DECODE.replace(min_length=50))
    np.testing.assert_array_equal(found.lengths[:, 0], np.where(lengths, lengths + DECODE.extra_length, 0))


def test_a_row_of_padding_is_no_sentence(model, source_ids):
    for found in (
        inference.search(model, source_ids, DECODE),
        inference.sample(model, source_ids, DECODE, seeds=0),
        inference.search(model, source_ids[-1:], DECODE),
        inference.search(model, tf.zeros((1, 0), tf.int32), DECODE),
    ):
        assert found.lengths[-1, 0] == 0 and found.scores[-1, 0] == 0.0 and not found.ids[-1, 0].numpy().any()


def test_a_translation_begins_with_its_prefix_and_goes_on_as_alone(model, source_ids):
    prefix_ids = tf.constant([[5, 6, 7], [8, 0, 0], [9] * 3, [0] * 3, [5, 6, 0]])
    found = inference.search(model, source_ids, DECODE, prefix_ids=prefix_ids)
    for row, prefix in zip(rows(found)[:-1], prefix_ids.numpy(), strict=False):
        prefix = prefix[prefix > 0].tolist()
        assert row[: len(prefix)] == prefix
    free = inference.search(model, source_ids, DECODE)
    assert rows(found)[3] == rows(free)[3] and rows(found)[4] == []


def test_a_long_prefix_leaves_room_behind_it(model):
    prefix_ids = tf.constant([[5] * 20])
    found = inference.search(model, tf.constant([[7, 3]]), DECODE.replace(min_length=30), prefix_ids=prefix_ids)
    assert found.lengths[0, 0] == 20 + DECODE.extra_length


def test_no_ngram_comes_twice(model, source_ids):
    for found in (
        inference.search(model, source_ids, DECODE.replace(no_repeat_ngram=1, min_length=9)),
        inference.sample(model, source_ids, DECODE.replace(no_repeat_ngram=1, min_length=9), seeds=3),
    ):
        for row in rows(found):
            assert len(set(row)) == len(row)


def test_an_ngram_longer_than_any_output_changes_nothing(model, source_ids):
    longest = inference.longest_output(model, DECODE)
    expected, far = rows(inference.search(model, source_ids, DECODE)), DECODE.replace(no_repeat_ngram=10**6)
    assert rows(inference.search(model, source_ids, far)) == expected
    assert rows(inference.search(model, source_ids, DECODE.replace(no_repeat_ngram=longest))) == expected
    drawn = rows(inference.sample(model, source_ids, DECODE, seeds=5))
    assert rows(inference.sample(model, source_ids, far, seeds=5)) == drawn


def test_sampling_from_one_piece_is_greedy(model, source_ids):
    greedy = rows(inference.sample(model, source_ids, DECODE, seeds=0, temperature=0.0))
    for changes in ({"top_k": 1}, {"top_p": 1e-6}):
        assert rows(inference.sample(model, source_ids, DECODE.replace(**changes), seeds=5)) == greedy


def test_scores_do_not_depend_on_how_many_rows_are_scored_at_a_time(model, source_ids, rng, monkeypatch):
    labels = tf.constant(rng.integers(4, VOCAB_SIZE, (5, 6)), tf.int32)
    together = inference.token_log_probs(model, source_ids, labels)
    monkeypatch.setattr(inference, "MAX_LOGITS", 2 * 6 * VOCAB_SIZE)
    np.testing.assert_allclose(inference.token_log_probs(model, source_ids, labels), together, atol=1e-5)
    assert inference.token_log_probs(model, source_ids[:0], labels[:0]).shape == (0, 6)


@pytest.mark.parametrize("max_logits", [inference.MAX_LOGITS, 2 * 6 * VOCAB_SIZE])
@pytest.mark.parametrize("xla", [False, True])
def test_scores_are_the_same_in_a_graph_and_under_xla(model, source_ids, rng, monkeypatch, max_logits, xla):
    labels = tf.constant(rng.integers(4, VOCAB_SIZE, (5, 6)), tf.int32)
    expected = inference.token_log_probs(model, source_ids, labels)
    monkeypatch.setattr(inference, "MAX_LOGITS", max_logits)
    score = tf.function(lambda *ids: inference.token_log_probs(model, *ids), jit_compile=xla, autograph=False)
    np.testing.assert_allclose(score(source_ids, labels), expected, atol=1e-5)


def test_an_alignment_has_every_layer_and_head_and_sums_to_one(model, source_ids):
    labels = tf.constant([[5, 6, 3]] * 5)
    maps = inference.alignments(model, source_ids, labels)
    assert maps.encoder.shape == (1, 5, 3, 7, 7) and maps.decoder.shape == (2, 5, 3, 3, 3)
    assert maps.cross.shape == (2, 5, 3, 3, 7)
    np.testing.assert_allclose(tf.reduce_sum(maps.cross, axis=-1), 1.0, atol=1e-5)
    assert not maps.cross[:, 1, :, :, 3:].numpy().any()  # padding is not attended to


def test_the_attention_to_the_source_is_the_mean_of_the_upper_half_of_the_layers(model, source_ids):
    labels = tf.constant([[5, 6, 3], [5, 3, 0], [3, 0, 0], [0, 0, 0], [7, 8, 9]])
    attention = tf.function(lambda *ids: inference.attention_to_source(model, *ids), autograph=False)
    expected = np.mean(inference.alignments(model, source_ids, labels).cross[1:], axis=(0, 2))  # of two layers
    np.testing.assert_allclose(attention(source_ids, labels), expected, atol=1e-6)
    alone = attention(source_ids[1:2, :3], labels[1:2, :2])  # without any padding
    np.testing.assert_allclose(alone[0], expected[1, :2, :3], atol=1e-6)


def test_learned_positions_limit_input_and_output():
    model = Transformer(VOCAB_SIZE, positions="learned", max_positions=11, **SIZES)
    assert inference.longest_input(model, DECODE) == inference.longest_output(model, DECODE) == 11
    source_ids = tf.constant([[5] * 10 + [3]])
    assert inference.search(model, source_ids, DECODE.replace(min_length=99)).lengths[0, 0] == 11


def test_positions_for_two_pieces_are_room_enough_for_xla():
    model = Transformer(VOCAB_SIZE, positions="learned", max_positions=2, **SIZES)

    def search(ids, loop):
        return inference.search(model, ids, DECODE, num_hypotheses=3, loop=loop)

    source_ids = np.array([[5, 3]] * 4, np.int32)
    found = tf.function(search, jit_compile=True, autograph=False)(source_ids, "xla")
    np.testing.assert_array_equal(found.ids, search(source_ids, "any").ids)


@pytest.mark.parametrize("loop", ["any", "xla"])
@pytest.mark.parametrize("batch", [2, 5])  # 6 rows go through panels, 15 do not
@pytest.mark.parametrize("large", [1, products_by_xla.LARGE_DENSE])  # 1: both have dense layers on the left
def test_the_search_is_the_same_under_xla(monkeypatch, model, source_ids, loop, batch, large):
    monkeypatch.setattr(products_by_xla, "AVX512", True)
    monkeypatch.setattr(products_by_xla, "FEW_ROWS", 8)
    monkeypatch.setattr(products_by_xla, "LARGE_DENSE", large)
    source_ids = source_ids[:batch]
    compiled = tf.function(
        lambda ids: inference.search(model, ids, DECODE, num_hypotheses=3, loop=loop), jit_compile=True, autograph=False
    )
    ours, plain = compiled(source_ids), inference.search(model, source_ids, DECODE, num_hypotheses=3)
    np.testing.assert_array_equal(ours.ids, plain.ids)
    np.testing.assert_allclose(ours.log_probs, plain.log_probs, atol=1e-4)


@pytest.mark.parametrize("loop", ["any", "graph", "xla"])
def test_a_graph_may_hold_its_source_ids(model, source_ids, loop):
    search = functools.partial(inference.search, model, decode=DECODE, num_hypotheses=3, loop=loop)
    held = tf.function(lambda: search(tf.constant(source_ids)), jit_compile=loop != "graph", autograph=False)()
    plain = inference.search(model, source_ids, DECODE, num_hypotheses=3)
    np.testing.assert_array_equal(held.ids, plain.ids)
    np.testing.assert_allclose(held.log_probs, plain.log_probs, atol=1e-4)


@pytest.mark.parametrize("large", [1, products_by_xla.LARGE])
def test_a_search_with_kept_panels_cuts_none_and_finds_the_same(monkeypatch, model, source_ids, large):
    monkeypatch.setattr(products_by_xla, "AVX512", True)
    for name in ("LARGE", "LARGE_DENSE"):
        monkeypatch.setattr(products_by_xla, name, large)
    panels, source_ids = keep_panels(model), source_ids[:2]
    panels.refresh()
    plain = inference.search(model, source_ids, DECODE, num_hypotheses=3)
    for cutting in ("to_panels", "in_rows"):
        monkeypatch.setattr(products_by_xla, cutting, lambda *args: pytest.fail("panels are cut in the program"))
    found = tf.function(
        lambda ids: inference.search(model, ids, DECODE, num_hypotheses=3, loop="xla", panels=panels),
        jit_compile=True,
        autograph=False,
    )(source_ids)
    np.testing.assert_array_equal(found.ids, plain.ids)
    np.testing.assert_allclose(found.log_probs, plain.log_probs, atol=1e-4)


@pytest.mark.parametrize("loop", ["any", "graph", "xla"])
def test_the_last_sentences_of_a_batch_find_what_each_finds_alone(model, rng, loop):
    lengths = [2, 3, 9, 2, 2, 3, 9, 2]  # and as many pieces and 5 have to come: the two long ones go on
    source_ids = np.array([[*rng.integers(4, VOCAB_SIZE, n - 1), 3] + [0] * (9 - n) for n in lengths], np.int32)
    decode = DECODE.replace(min_length=99)

    def search(ids, loop):
        return inference.search(model, ids, decode, num_hypotheses=3, loop=loop)

    found = tf.function(search, jit_compile=loop == "xla", autograph=False)(source_ids, loop)
    for row, ids in enumerate(source_ids):
        alone = search(ids[None], "any")
        assert (found.lengths[row].numpy() == lengths[row] + DECODE.extra_length).all()
        np.testing.assert_array_equal(found.ids[row], alone.ids[0])
        np.testing.assert_allclose(found.log_probs[row], alone.log_probs[0], atol=1e-4)


@pytest.mark.parametrize("loop", ["graph", "xla"])
def test_a_search_that_outgrows_its_first_room_finds_what_one_with_all_room_finds(model, rng, loop):
    source_ids = np.array([[*rng.integers(4, VOCAB_SIZE, 2), 3] for _ in range(9)], np.int32)
    decode = DECODE.replace(extra_length=30, min_length=99)  # nobody ends before 33 pieces; the first room is 8, or 12

    def search(ids, loop):
        return inference.search(model, ids, decode, num_hypotheses=3, loop=loop)

    found = tf.function(search, jit_compile=loop == "xla", autograph=False)(source_ids, loop)
    plain = search(source_ids, "any")
    assert (found.lengths.numpy() == 33).all()
    np.testing.assert_array_equal(found.ids, plain.ids)
    np.testing.assert_allclose(found.log_probs, plain.log_probs, atol=1e-4)


@pytest.mark.parametrize("loop, rooms", [("graph", [8, 16, 24, 32, 33]), ("xla", [6, 12, 33])])
def test_a_search_begins_with_little_room_and_in_a_graph_with_one_beam(model, rng, monkeypatch, loop, rooms):
    source_ids = np.array([[*rng.integers(4, VOCAB_SIZE, 2), 3] for _ in range(9)], np.int32)
    seen, step = [], Transformer.step

    def watched(self, ids, index, cache):
        seen.append((int(index), ids.shape[1], cache.path.shape[2] // cache.path.shape[1]))
        return step(self, ids, index, cache)

    monkeypatch.setattr(Transformer, "step", watched)
    inference.search(model, source_ids, DECODE.replace(extra_length=30, min_length=99), loop=loop)  # eagerly
    assert [beams for index, beams, _ in seen if index == 0] == [1 if loop == "graph" else 3]
    assert {beams for index, beams, _ in seen if index > 0} == {3}
    found = sorted({room for index, _, room in seen if index > 0})
    assert found == rooms
    assert all(room == next(each for each in rooms if each > index) for index, _, room in seen if index > 0)


@pytest.mark.parametrize("loop", ["graph", "xla"])
def test_a_prefix_longer_than_the_source_has_its_room(model, rng, loop):
    source_ids = np.array([[*rng.integers(4, VOCAB_SIZE, 2), 3] for _ in range(5)], np.int32)
    prefix_ids = rng.integers(4, VOCAB_SIZE, (5, 20)).astype(np.int32)

    def search(ids, loop):
        return inference.search(model, ids, DECODE, prefix_ids=prefix_ids, loop=loop)

    found = tf.function(search, jit_compile=loop == "xla", autograph=False)(source_ids, loop)
    assert rows(found) == rows(search(source_ids, "any")) and [row[:20] for row in rows(found)] == prefix_ids.tolist()


@pytest.mark.parametrize("batch", [0, 1, 5, 6, 9])  # 5 sentences are 15 rows, so few; of 6 and of 9 some are the last
def test_a_graph_multiplies_few_rows_by_panels(model, rng, monkeypatch, batch):
    made = []
    monkeypatch.setattr(products_in_graph, "GRAPH_LARGE", 1)
    monkeypatch.setattr(products_in_graph, "LEAST_PART", 1)
    monkeypatch.setattr(products_in_graph, "by_graph_panels", lambda *args: made.append(0) or by_graph_panels(*args))
    lengths = ([6, 2, 2] * 3)[:batch]
    rows = [[*rng.integers(4, VOCAB_SIZE, n - 1), 3] + [0] * (6 - n) for n in lengths]
    source_ids = np.array(rows, np.int32).reshape(batch, 6)
    decode = DECODE.replace(min_length=99)  # as many pieces as in the source and 5 have to come: the long ones go on

    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32)], autograph=False)
    def search(ids):
        return inference.search(model, ids, decode, num_hypotheses=3, loop="graph")

    found, plain = search(source_ids), inference.search(model, source_ids, decode, num_hypotheses=3)
    assert len(made) == 1 + 2 * len(model.decoder)  # of the vocabulary, and of both layers of a network
    np.testing.assert_array_equal(found.ids, plain.ids)
    np.testing.assert_allclose(found.log_probs, plain.log_probs, atol=1e-4)


@pytest.mark.parametrize("compile", [lambda f: f, lambda f: tf.function(f, autograph=False)], ids=["eager", "graph"])
@pytest.mark.parametrize("times", [1, 2])  # 15 rows are few, 30 are many
def test_a_graph_that_works_in_place_finds_the_same(model, source_ids, compile, times):
    source_ids = tf.tile(source_ids, (times, 1))
    questions = [
        lambda ids, **how: inference.search(model, ids, DECODE, num_hypotheses=3, **how),
        lambda ids, **how: inference.search(
            model, ids, DECODE, prefix_ids=tf.tile([[7, 8]], (tf.shape(ids)[0], 1)), **how
        ),
        lambda ids, **how: inference.sample(model, ids, DECODE, seeds=3, **how),
    ]
    for ask in questions:
        plain, in_place = (
            compile(lambda ids, loop=loop, ask=ask: ask(ids, loop=loop))(source_ids) for loop in ("any", "graph")
        )
        np.testing.assert_array_equal(plain.ids, in_place.ids)
        np.testing.assert_array_equal(plain.lengths, in_place.lengths)
        np.testing.assert_allclose(plain.log_probs, in_place.log_probs, atol=1e-5)  # the vocabulary lies otherwise
        np.testing.assert_allclose(plain.scores, in_place.scores, atol=1e-5)
