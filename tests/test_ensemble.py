"""Several models that translate as one."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import Ensemble, Transformer, inference
from keras_transformer.config import DecodeConfig
from keras_transformer.ensemble import log_mean
from keras_transformer.fast import products_by_xla, products_in_graph
from keras_transformer.model_products import keep_panels, search_products
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from keras_transformer.translator import Translator
from tests.decoding import worlds
from tests.decoding.worlds import Demand, assert_same, brute_force, plain_beam_search, read
from tests.small import B, T, V, padded_pairs, sentences, small_model

DECODE = DecodeConfig(beam_width=3, extra_length=5)
TINY = 7  # a vocabulary of which all translations can be tried


def model_of(seed, vocab_size=V, **changes):
    """A Transformer that ends some sentences early and others late, and whose hypotheses differ."""
    sizes = dict(d_model=12, d_ff=17, num_heads=3, num_encoder_layers=1, num_decoder_layers=1, tied_embeddings="none")
    model, rng = Transformer(vocab_size, **{**sizes, **changes}), np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(0, 0.7, weight.shape))
    return model


# The second member has nothing in common with the first but the vocabulary.
OTHER = dict(
    d_model=20, d_ff=11, num_heads=2, d_k=5, num_decoder_layers=2, norm="pre", positions="learned", max_positions=64
)


@functools.cache
def ensemble_of_two(vocab_size=V):
    return Ensemble([model_of(7, vocab_size), model_of(8, vocab_size, **OTHER)])


@pytest.fixture(scope="module")
def ensemble():
    return ensemble_of_two()


@pytest.fixture(scope="module")
def source_ids():
    ids = sentences((9, 7, 3, 2, 0, 5, 8, 4, 2), 9, seed=3)
    ids = np.where(ids > 0, np.maximum(ids, 4), 0)
    for row in ids:
        row[max(0, np.count_nonzero(row) - 1)] = EOS_ID if row.any() else 0
    return ids


def softmax(logits):
    exponentials = np.exp(np.float64(logits) - np.max(logits, axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def assert_same_hypotheses(found, expected, tolerance=1e-4):
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    for one, other in ((found.log_probs, expected.log_probs), (found.scores, expected.scores)):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=1e-5)


# --- the probabilities


def test_the_probabilities_are_the_mean_of_those_of_the_members(ensemble):
    pair = padded_pairs()
    found = ensemble(pair)
    expected = np.mean([softmax(member(pair)) for member in ensemble.members], axis=0)
    assert found.shape == (B, T, V) and found.dtype == tf.float32
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-6)


def test_a_probability_that_has_no_float_has_a_logarithm():
    found = log_mean([tf.constant([[0.0, -300.0]]), tf.constant([[0.0, -300.0]])])
    np.testing.assert_allclose(found, [[0.0, -300.0]])


def test_what_one_member_excludes_the_other_may_write_and_what_all_exclude_nobody():
    never = -np.inf
    found = log_mean([tf.constant([[0.0, never, never]]), tf.constant([[0.0, 0.0, never]])])
    np.testing.assert_allclose(np.exp(found), [[0.75, 0.25, 0.0]], atol=1e-6)


def test_members_in_half_precision_make_a_mean_in_float32():
    ensemble = Ensemble([small_model(dtype="mixed_bfloat16"), small_model()])
    assert ensemble(padded_pairs()).dtype == tf.float32


def test_steps_give_what_teacher_forcing_gives(ensemble):
    source_ids, target_ids = padded_pairs()
    expected = ensemble((source_ids, target_ids)).numpy()
    cache = ensemble.start_cache(*ensemble.encode(source_ids), max_length=T)
    for index in range(T):
        found, cache = ensemble.step(target_ids[:, index, None], index, cache)
        real = target_ids[:, index] > 0
        np.testing.assert_allclose(found[:, 0][real], expected[:, index][real], atol=1e-4)


# --- one member


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1), st.integers(1, 4), st.lists(st.lists(st.integers(4, V - 1), max_size=8), min_size=1, max_size=4)
)
def test_an_ensemble_of_one_translates_as_its_member(place, beam_width, rows):
    member, decode = ensemble_of_two().members[place], DECODE.replace(beam_width=beam_width)
    source_ids = np.zeros((len(rows), 9), np.int32)
    for row, ids in zip(source_ids, rows, strict=True):
        row[: len(ids) + 1] = [*ids, EOS_ID]
    found, expected = (inference.search(model, source_ids, decode) for model in (Ensemble([member]), member))
    assert_same_hypotheses(found, expected)


def test_a_model_and_itself_translate_as_the_model(ensemble, source_ids):
    member = ensemble.members[0]
    found = inference.search(Ensemble([member, member]), source_ids, DECODE, num_hypotheses=3)
    assert_same_hypotheses(found, inference.search(member, source_ids, DECODE, num_hypotheses=3))


# --- two members against lists and recursion


class Mean:
    """Two members as a world of `tests.decoding.worlds`: a search sees the ensemble, a reader the mean in NumPy."""

    vocab_size, limit = TINY, 4

    def __init__(self):
        self.ensemble = ensemble_of_two(TINY)
        self.step, self.reorder = self.ensemble.step, self.ensemble.reorder
        self.source_ids = np.array([[5, 6, 4, 0], [3, 0, 0, 0], [6, 4, 5, 3]], np.int32)  # of sentences 0, 1, 2

    def start(self, places, width):
        memory = self.ensemble.encode(self.source_ids[places])
        return self.ensemble.start_cache(*memory, self.limit, beam_width=width)

    @functools.cache  # noqa: B019 - of one world, for a few tests
    def log_probs(self, place, history):
        pair = self.source_ids[place, None], np.array([[worlds.BOS, *history]])
        return np.log(np.mean([softmax(member(pair)[0, -1]) for member in self.ensemble.members], axis=0))


@pytest.fixture(scope="module")
def world():
    return Mean()


DEMANDS = [Demand(0, 4), Demand(1, 3), Demand(2, 4, min_length=3), Demand(0, 4, prefix=(5, 6))]


@pytest.mark.parametrize("beam_width", [1, 2, 3])
def test_a_beam_search_finds_what_one_from_its_definition_finds(world, beam_width):
    found = worlds.search(world, DEMANDS, beam_width=beam_width, num_hypotheses=beam_width, alpha=0.6)
    for row, demand in enumerate(DEMANDS):
        expected = plain_beam_search(world, demand, beam_width=beam_width, alpha=0.6)
        assert_same(read(found, row), expected[:beam_width], tolerance=1e-4)


def test_a_beam_for_all_translations_finds_the_best_of_all(world):
    found = worlds.search(world, DEMANDS, beam_width=64, num_hypotheses=5, alpha=0.6)
    for row, demand in enumerate(DEMANDS):
        assert_same(read(found, row), brute_force(world, demand, alpha=0.6)[:5], tolerance=1e-4)


# --- one search everywhere


@pytest.fixture(scope="module")
def expected(ensemble, source_ids):
    """What a plain loop finds."""
    return inference.search(ensemble, source_ids, DECODE, num_hypotheses=3)


@pytest.mark.parametrize(("loop", "few"), [("graph", False), ("graph", True), ("xla", False), ("xla", True)])
def test_the_search_is_the_same_in_a_graph_and_under_xla(ensemble, source_ids, expected, monkeypatch, loop, few):
    """27 rows, of which a graph makes many or few; XLA with panels or, for more than 8 rows, without."""
    monkeypatch.setattr(products_in_graph, "GRAPH_LARGE", 1)
    monkeypatch.setattr(inference, "GRAPH_FEW_ROWS", 32 if few else 2)
    monkeypatch.setattr(products_by_xla, "FEW_ROWS", 32 if few else 8)
    search = functools.partial(inference.search, ensemble, decode=DECODE, num_hypotheses=3, loop=loop)
    found = tf.function(search, jit_compile=loop == "xla", autograph=False)(source_ids)
    assert len(set(expected.lengths[:, 0].numpy().tolist())) > 3  # they end at different times
    assert_same_hypotheses(found, expected)


def test_every_member_has_its_fast_products_and_keeps_its_panels(ensemble, source_ids, monkeypatch):
    monkeypatch.setattr(products_by_xla, "AVX512", True)
    for loop in ("graph", "xla"):
        found = [search_products(member, loop).keys() for member in ensemble.members]
        assert search_products(ensemble, loop).keys() == set().union(*found) and all(found)
    panels = keep_panels(ensemble)
    panels.refresh()
    monkeypatch.setattr(products_by_xla, "to_panels", lambda *args: pytest.fail("panels are cut in the program"))
    search = functools.partial(inference.search, ensemble, decode=DECODE, loop="xla", panels=panels)
    found = tf.function(search, jit_compile=True, autograph=False)(source_ids[:2])
    assert_same_hypotheses(found, inference.search(ensemble, source_ids[:2], DECODE))


def test_a_sentence_gets_the_same_translations_alone_and_in_any_batch(ensemble, source_ids):
    search = tf.function(
        lambda ids: inference.search(ensemble, ids, DECODE, num_hypotheses=3, loop="graph"),
        input_signature=[tf.TensorSpec((None, None), tf.int32)],
        autograph=False,
    )
    found = search(source_ids)
    for row, ids in enumerate(source_ids[:5]):
        length = max(1, np.count_nonzero(ids))
        alone = search(ids[None, :length])
        width = alone.ids.shape[2]
        np.testing.assert_array_equal(found.ids[row, :, :width], alone.ids[0])
        assert not found.ids[row, :, width:].numpy().any()
        np.testing.assert_allclose(found.log_probs[row], alone.log_probs[0], atol=1e-5)


def test_what_is_found_has_the_log_probability_that_scoring_gives(ensemble, source_ids):
    prefix_ids = tf.constant([[5, 6], [8, 0], [0, 0]] * 3)
    for found in (
        inference.search(ensemble, source_ids, DECODE, num_hypotheses=3),
        inference.search(ensemble, source_ids, DECODE, prefix_ids=prefix_ids, loop="any"),
        inference.sample(ensemble, source_ids, DECODE, seeds=tf.range(9)),
    ):
        for place in range(found.ids.shape[1]):
            exists = found.lengths[:, place] > 0
            again = inference.token_log_probs(ensemble, source_ids, found.ids[:, place])
            expected = found.log_probs[:, place][exists]
            np.testing.assert_allclose(tf.reduce_sum(again, axis=1)[exists], expected, atol=1e-4)


def test_scores_are_the_mean_in_numpy(ensemble, source_ids, rng):
    labels = rng.integers(4, V, (9, 6)).astype(np.int32)
    labels[::2, 4:] = EOS_ID, PAD_ID
    target_ids = np.concatenate([np.full((9, 1), BOS_ID), labels[:, :-1]], axis=1)
    source_ids = np.where(np.arange(9) == 0, np.maximum(source_ids, EOS_ID), source_ids)  # an empty one becomes eos
    mean = np.mean([softmax(member((source_ids, target_ids))) for member in ensemble.members], axis=0)
    expected = np.log(np.take_along_axis(mean, labels[:, :, None], axis=2)[:, :, 0])
    score = tf.function(functools.partial(inference.token_log_probs, ensemble), autograph=False)
    np.testing.assert_allclose(score(source_ids, labels), np.where(labels == PAD_ID, 0.0, expected), atol=1e-4)


def test_the_shortest_table_of_positions_limits_all():
    members = [model_of(1, positions="learned", max_positions=limit) for limit in (13, 11)] + [model_of(2)]
    assert inference.longest_output(Ensemble(members), DECODE) == 11
    assert inference.longest_output(Ensemble(members[2:]), DECODE) == inference.longest_output(members[2], DECODE) > 13
    found = inference.search(Ensemble(members), tf.constant([[5] * 10 + [EOS_ID]]), DECODE.replace(min_length=99))
    assert found.lengths[0, 0] == 11


# --- text


TEXTS = ["Anna sleeps.", "", "The old man wants to read the book because it is good.", "   ", "Tom!"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 9, vocab_size=V)


def test_a_translator_translates_samples_and_scores_as_many_models(ensemble, tokenizer):
    translator = Translator(ensemble, tokenizer, DECODE, xla=False)
    together = translator.translate_nbest(TEXTS, 2)
    assert translator.translate(TEXTS) == [found[0].text for found in together]
    assert together[1][0].text == together[3][0].text == ""
    found = [found[0] for found in together if found[0].pieces]
    again = translator.score([TEXTS[i] for i in (0, 2, 4)], [one.pieces for one in found])
    np.testing.assert_allclose([one.score for one in again], [one.score for one in found], atol=1e-4)
    begun, *_ = translator.translate_prefix(["Tom!"], ["Anna"])
    assert begun.text.startswith("Anna")
    assert translator.sample(["Tom!"], seeds=3) == translator.sample(["Tom!"], seeds=3)


def test_a_compiled_translator_has_the_weights_that_members_have_now(tokenizer):
    ensemble = Ensemble([model_of(1), model_of(2)])
    compiled, plain = (Translator(ensemble, tokenizer, DECODE, xla=xla) for xla in (True, False))
    scores = []
    for seed in (2, 3):
        ensemble.members[1].set_weights(model_of(seed).get_weights())
        found, expected = (each.translate_nbest(["Tom!"], 1)[0][0] for each in (compiled, plain))
        assert found.pieces == expected.pieces and found.score == pytest.approx(expected.score, abs=1e-4)
        scores.append(found.score)
    assert abs(scores[0] - scores[1]) > 0.01


# --- what is refused


def test_words_are_aligned_by_the_mean_of_the_members(ensemble, source_ids):
    labels = np.where(source_ids[:, ::-1] > 0, 5, 0)[:, :4]
    found = inference.attention_to_source(ensemble, source_ids, labels)
    each = [inference.attention_to_source(member, source_ids, labels) for member in ensemble.members]
    np.testing.assert_allclose(found, (each[0] + each[1]) / 2, atol=1e-6)
    assert np.abs(each[0] - each[1]).max() > 0.1


def test_an_ensemble_knows_what_its_members_have(ensemble):
    sizes = [member.count_params() for member in ensemble.members]
    assert ensemble.count_params() == sum(sizes) == sum(int(np.prod(w.shape)) for w in ensemble.weights)
    assert len(set(sizes)) == 2 and (ensemble.vocab_size, ensemble.source_vocab_size) == (V, V)


@pytest.mark.parametrize("members", [[], ["model"], [ensemble_of_two()]])
def test_members_are_transformers(members):
    with pytest.raises(TypeError, match="`members` must be a list of Transformers, at least one. Received: "):
        Ensemble(members)


def test_members_have_equal_vocabularies():
    members = model_of(1), model_of(2, source_vocab_size=V + 2)
    with pytest.raises(ValueError, match=rf"equal vocabularies. Received: .* = \({V}, {V}\), \({V + 2}, {V}\)."):
        Ensemble(members)


def test_what_one_model_alone_has_is_refused(ensemble, tokenizer, tmp_path):
    translator = Translator(ensemble, tokenizer)
    with pytest.raises(ValueError, match="one model; .* Received: an ensemble of 2 models"):
        translator.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    with pytest.raises(ValueError, match="asked of one model.* Received: an ensemble of 2 models"):
        translator.align(["Tom!"], ["Tom!"])


def test_runs_with_equal_tokenizers_are_loaded_together(tokenizer, tmp_path):
    others = Tokenizer.train(["something else"] * 9, vocab_size=V)
    translators = [Translator(model_of(seed), tokenizer, DECODE.replace(beam_width=seed)) for seed in (1, 2)]
    translators.append(Translator(model_of(3), others))
    for name, translator in zip("abc", translators, strict=True):
        translator.save(tmp_path / name)
    loaded = Translator.load(tmp_path / "b", tmp_path / "a", alpha=1.0)
    assert loaded.decode == DECODE.replace(beam_width=2, alpha=1.0)  # of the first
    expected = Translator(Ensemble([translators[1].model, translators[0].model]), tokenizer, loaded.decode)
    assert loaded.translate_nbest(TEXTS, 2) == expected.translate_nbest(TEXTS, 2)
    with pytest.raises(ValueError, match=f"equal tokenizers, those of {tmp_path / 'a'}: .*Received: {tmp_path / 'c'}"):
        Translator.load(tmp_path / "a", tmp_path / "c")
