import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry

from export.contents import operations
from export.module import ServingTranslator
from export.saved_model import write
from keras_transformer import Transformer
from keras_transformer.config import DecodeConfig
from keras_transformer.tokenizer import Tokenizer, Tokenizers, pad
from keras_transformer.translator import Translator

SENTENCES = ["the dog sees the cat .", "a small house", "he does not see the old man in the garden .", "x"]
HOSTILE = [
    b"",
    b" \t\r\n",
    "\u00a0\u2028\u3000".encode(),
    b"\x00",
    b"\xff\xfe\x80",
    "é".encode()[:1],
    b"\xed\xa0\x80",  # a surrogate
    "👩‍👩‍👧 \u202e abc".encode(),
    b"</s> <s> <pad>",
    b"a" * 20_000,
    "ä".encode() * 5_000,
    b"the dog " * 100_000,
]


def strings(texts):
    return tf.constant([text if isinstance(text, bytes) else text.encode() for text in texts], tf.string)


def decoded(texts):
    return [text.decode() for text in texts.tolist()]


def test_there_is_a_signature_for_everything(signatures):
    assert set(signatures) == {
        "serving_default", "translate_nbest", "translate_prefix", "translate_prefix_nbest", "sample", "score", "align",
        "translate_ids",
    }  # fmt: skip


def test_the_sentences_of_these_tests_end_early_late_and_at_the_limit(translator):
    """So that what is compared below is more than a search that always runs to its limit."""
    found = [best for best, *_ in translator.translate_nbest(SENTENCES, 1)]
    ended = [len(best.pieces) for best in found if best.pieces[-1] == "</s>"]
    assert 2 <= len(ended) < len(SENTENCES) and max(ended) > 2 * min(ended)
    assert len({best.text for best in found}) == len(SENTENCES)


def test_the_translations_are_those_of_the_translator(signatures, translator):
    texts = [*SENTENCES, "", " \u00a0\x1c\x85\u2028", "\u200b", "\uff21 ﬁ e\u0301"]
    answer = signatures["serving_default"](text=strings(texts))
    expected = [best for best, *_ in translator.translate_nbest(texts, 1)]
    assert decoded(answer["translation"]) == [best.text for best in expected]
    np.testing.assert_allclose(answer["score"], [best.score for best in expected], atol=1e-4)


def test_the_best_translations_are_those_of_the_translator(signatures, translator):
    width = translator.decode.beam_width
    answer = signatures["translate_nbest"](text=strings([*SENTENCES, ""]))
    for texts, scores, expected in zip(
        answer["translations"], answer["scores"], translator.translate_nbest(SENTENCES, width), strict=False
    ):
        assert decoded(texts) == [hypothesis.text for hypothesis in expected] + [""] * (width - len(expected))
        np.testing.assert_allclose(scores[: len(expected)], [hypothesis.score for hypothesis in expected], atol=1e-4)
        assert (scores[len(expected) :] == tf.float32.min).all()
    assert decoded(answer["translations"][-1]) == [""] * width
    assert answer["scores"][-1].tolist() == [0.0] + [tf.float32.min] * (width - 1)  # finite: JSON has no infinity


def test_ids_are_translated_as_their_text_and_padding_of_any_kind_does_no_harm(signatures, translator):
    sources = translator.tokenizers.source.encode(SENTENCES)
    ids = np.full((len(sources) + 1, 3 + max(map(len, sources))), 7, np.int32)  # as TF Serving pads
    for row, source in zip(ids, sources, strict=False):
        row[: len(source)] = source
    ids[-1] = 0
    answer = signatures["translate_ids"](ids=tf.constant(ids))
    rows = [row[:length] for row, length in zip(answer["ids"], answer["lengths"], strict=True)]
    expected = signatures["serving_default"](text=strings([*SENTENCES, ""]))
    assert translator.tokenizers.target.decode(rows) == decoded(expected["translation"])
    np.testing.assert_allclose(answer["score"], expected["score"], atol=1e-4)
    assert answer["lengths"][-1] == 0 and answer["ids"].shape[1] == answer["lengths"].max()


def test_ids_that_do_not_exist_are_unknown(signatures):
    ids = tf.constant([[5, -1, 3], [5, 2**31 - 1, 3], [5, 1, 3], [5, 1, 0]], tf.int32)  # the last has no end
    answer = signatures["translate_ids"](ids=ids)
    assert np.ptp(answer["score"]) < 1e-5 and (answer["ids"] == answer["ids"][0]).all()


def test_scores_are_those_of_the_translator_piece_by_piece(signatures, translator):
    targets = ["der Hund", "ein kleines Haus ist hier .", "", "x"]
    answer = signatures["score"](source=strings(SENTENCES), target=strings(targets))
    for i, expected in enumerate(translator.score(SENTENCES, targets)):
        assert answer["num_tokens"][i] == len(expected.pieces)
        assert answer["log_prob"][i] == pytest.approx(expected.log_prob, abs=1e-3)
        assert answer["score"][i] == pytest.approx(expected.score, abs=1e-3)
        log_probs = answer["token_log_probs"][i]
        np.testing.assert_allclose(log_probs[: len(expected.pieces)], expected.log_probs, atol=1e-4)
        assert not log_probs[len(expected.pieces) :].any()


def test_what_the_search_says_of_a_translation_scoring_says_too(rng):
    """The prefix makes sure that the text is cut into the pieces that the search has written."""
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=31)
    sizes = {"d_model": 12, "d_ff": 17, "num_heads": 3, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(tokenizer.vocab_size, **sizes)
    for weight in model.trainable_variables:  # so small that every piece is as likely as any: the shortest wins
        weight.assign(rng.normal(0, 0.1, weight.shape))
    translator = Translator(model, Tokenizers(tokenizer, tokenizer), DecodeConfig(beam_width=31, extra_length=5))
    signatures = ServingTranslator(translator).signatures()
    texts, targets = strings(SENTENCES), strings(["the dog", "a cat .", "he does not see", "x"])
    found = signatures["translate_prefix"](text=texts, prefix=targets)
    assert found["translation"].numpy().tolist() == targets.numpy().tolist()
    scored = signatures["score"](source=texts, target=targets)
    np.testing.assert_allclose(scored["score"], found["score"], atol=1e-4)
    assert np.ptp(scored["score"]) > 1


def test_a_translation_begins_with_its_prefix(signatures, translator):
    texts, prefixes = [*SENTENCES, "", "a small house"], ["der alte", "", "Anna", "x", "der", "ein kleines"]
    answer = signatures["translate_prefix"](text=strings(texts), prefix=strings(prefixes))
    expected = translator.translate_prefix(texts, prefixes)
    assert decoded(answer["translation"]) == [one.text for one in expected]
    np.testing.assert_allclose(answer["score"], [one.score for one in expected], atol=1e-4)
    assert decoded(answer["translation"])[0].startswith("der alte")
    lists = signatures["translate_prefix_nbest"](text=strings(texts), prefix=strings(prefixes))
    width = translator.decode.beam_width
    for i, found in enumerate(translator.translate_prefix_nbest(texts, prefixes, width)):
        assert decoded(lists["translations"][i]) == [one.text for one in found] + [""] * (width - len(found))
        np.testing.assert_allclose(lists["scores"][i][: len(found)], [one.score for one in found], atol=1e-4)
        assert (lists["scores"][i][len(found) :] == tf.float32.min).all()
    assert lists["scores"][:, 0] == pytest.approx(answer["score"], abs=1e-4)


def test_a_seed_draws_the_same_in_any_company(signatures, translator):
    seeds, temperatures = np.arange(5), np.array([1.0, 0.0, 0.5, 1.5, 1.0], np.float32)
    texts = [*SENTENCES, ""]

    def draw(rows):
        some = strings([texts[i] for i in rows])
        inputs = {"temperature": tf.constant(temperatures[rows]), "seed": tf.constant(seeds[rows], tf.int64)}
        return decoded(signatures["sample"](text=some, **inputs)["translation"])

    together = draw([0, 1, 2, 3, 4])
    assert [draw([i])[0] for i in range(5)] == together
    assert draw([3, 0, 3])[::2] == [together[3]] * 2
    assert together[0] == translator.sample(texts[:1], 0, 1.0)[0].text and together[4] == ""


def test_strange_temperatures_are_no_errors(signatures):
    temperatures = tf.constant([-1.0, np.nan, np.inf, 1e-30, 1e30, -np.inf])
    seeds = tf.constant([0, -1, 2**63 - 1, -(2**63), 5, 5], tf.int64)
    answer = signatures["sample"](text=strings(["a small house"] * 6), temperature=temperatures, seed=seeds)
    assert np.isfinite(answer["score"]).all()


def test_an_alignment_is_that_of_the_translator(signatures, translator):
    targets = ["der Hund", "ein kleines Haus ist hier .", "", "x"]
    answer = signatures["align"](source=strings(SENTENCES), target=strings(targets))
    for i, expected in enumerate(translator.align(SENTENCES, targets)):
        for side, pieces in (("source_pieces", expected.source_pieces), ("target_pieces", expected.target_pieces)):
            assert decoded(answer[side][i])[: len(pieces)] == pieces and not any(answer[side][i][len(pieces) :])
        maps = expected.maps.cross[max(0, len(expected.maps.cross) - 2)]  # (H, T, S)
        _, num_targets, num_sources = maps.shape
        np.testing.assert_allclose(answer["weights"][i, :, :num_targets, :num_sources], maps, atol=1e-5)
        assert answer["weights"][i].sum() == pytest.approx(maps.sum(), abs=1e-3)  # nothing elsewhere


@pytest.mark.parametrize("name", ["score", "align"])
def test_every_source_needs_its_target(signatures, name):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Every source needs its target"):
        signatures[name](source=strings(SENTENCES), target=strings(["x"]))


def test_no_string_is_an_error_and_none_changes_its_neighbours(signatures):
    mixed = [text for pair in zip(HOSTILE, SENTENCES * 3, strict=True) for text in pair]
    answer = signatures["serving_default"](text=strings(mixed))
    alone = signatures["serving_default"](text=strings(SENTENCES))
    assert len(answer["translation"]) == len(mixed)
    assert decoded(answer["translation"])[1::2] == decoded(alone["translation"]) * 3  # and every one is UTF-8
    np.testing.assert_allclose(answer["score"][1::2], np.tile(alone["score"], 3), atol=1e-4)
    assert np.isfinite(answer["score"]).all()
    assert answer["translation"][:3].tolist()[::2] == [b"", b""] and answer["score"][0] == answer["score"][2] == 0
    scored = signatures["score"](source=strings(mixed[:20]), target=strings(mixed[19::-1]))
    assert np.isfinite(scored["log_prob"]).all()


@pytest.mark.parametrize(
    "name", ["translate_nbest", "translate_prefix", "translate_prefix_nbest", "sample", "score", "align"]
)
def test_no_string_is_an_error_for_any_signature(signatures, name):
    def ask(texts):
        others = {
            "translate_prefix": {"prefix": strings(texts[::-1])},
            "translate_prefix_nbest": {"prefix": strings(texts[::-1])},
            "sample": {"temperature": tf.ones(len(texts)), "seed": tf.ones(len(texts), tf.int64)},
        }
        if name in ("score", "align"):
            return signatures[name](source=strings(texts), target=strings(texts[::-1]))
        return signatures[name](text=strings(texts), **others.get(name, {}))

    hostile = [text[:50] for text in HOSTILE]  # what is long is cut: test_what_is_too_long_is_cut_...
    together, alone = ask([SENTENCES[0], *hostile, SENTENCES[1]]), ask([SENTENCES[0], SENTENCES[1]])
    for key, values in together.items():
        if values.dtype == object:
            assert [text.decode() for text in values.ravel()]  # all of it is UTF-8
        else:
            assert np.isfinite(values).all()
            rows, expected = values[[0, -1]], alone[key]
            cut = tuple(slice(size) for size in expected.shape)
            np.testing.assert_allclose(rows[cut], expected, atol=1e-4)


bad_bytes = st.one_of(st.binary(max_size=60), st.sampled_from(HOSTILE[:9]))
any_text = st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass"))


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(bad_bytes, any_text), min_size=41, max_size=41))
def test_ten_thousand_strings_are_no_errors_and_leave_their_neighbours_alone(signatures, expected_neighbours, texts):
    mixed = [*SENTENCES[:2], *texts, *SENTENCES[2:]]
    answer = signatures["serving_default"](text=strings(mixed))
    found = decoded(answer["translation"])  # valid UTF-8
    assert len(found) == len(answer["score"]) == len(mixed)
    assert np.isfinite(answer["score"]).all()
    neighbours = [0, 1, -2, -1]
    assert [found[i] for i in neighbours] == expected_neighbours[0]
    np.testing.assert_allclose(answer["score"][neighbours], expected_neighbours[1], atol=1e-4)


@pytest.fixture(scope="module")
def expected_neighbours(signatures):
    alone = [signatures["serving_default"](text=strings([text])) for text in SENTENCES]
    return [decoded(one["translation"])[0] for one in alone], [one["score"][0] for one in alone]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, len(SENTENCES) - 1), min_size=1, max_size=9))
def test_a_sentence_is_translated_alike_in_any_batch(signatures, expected_neighbours, rows):
    answer = signatures["serving_default"](text=strings([SENTENCES[row] for row in rows]))
    assert decoded(answer["translation"]) == [expected_neighbours[0][row] for row in rows]
    np.testing.assert_allclose(answer["score"], [expected_neighbours[1][row] for row in rows], atol=1e-4)


def test_an_empty_batch_has_an_empty_answer(signatures, translator):
    nothing = strings([])
    no_numbers = {"temperature": tf.zeros(0), "seed": tf.zeros(0, tf.int64)}
    inputs = {
        "serving_default": {"text": nothing},
        "translate_nbest": {"text": nothing},
        "translate_prefix": {"text": nothing, "prefix": nothing},
        "translate_prefix_nbest": {"text": nothing, "prefix": nothing},
        "sample": {"text": nothing, **no_numbers},
        "score": {"source": nothing, "target": nothing},
        "align": {"source": nothing, "target": nothing},
        "translate_ids": {"ids": tf.zeros((0, 5), tf.int32)},
    }
    assert set(inputs) == set(signatures)
    for name, given_inputs in inputs.items():
        assert {len(x) for x in signatures[name](**given_inputs).values()} == {0}, name
    assert signatures["translate_nbest"](text=nothing)["scores"].shape == (0, translator.decode.beam_width)
    assert [len(x) for x in signatures["translate_ids"](ids=tf.zeros((0, 0), tf.int32)).values()] == [0] * 3
    assert signatures["translate_ids"](ids=tf.zeros((2, 0), tf.int32))["lengths"].tolist() == [0, 0]


def test_what_is_too_long_is_cut_at_a_character_and_at_a_token(translator):
    short = Translator(translator.model, translator.tokenizers, DecodeConfig(max_input_length=3))
    served = ServingTranslator(short, max_input_bytes=7)
    cleaned = served._clean(strings(["ääää", "aäää", "a👩👩", "äää\ufffd", b"\xff"]))
    assert decoded(cleaned.numpy()) == ["äää", "aäää", "a👩", "äää", "\ufffd"]
    ids = served._source_ids(strings(["a b c", "a"])).numpy()
    assert ids.shape[1] == 3 and ids[0, -1] == 3 and 3 in ids[1]


def test_two_vocabularies_and_learned_positions(tmp_path):
    """Sentences longer than the positions reach are cut and not an error; each side has its own tokenizer."""
    tokenizers = Tokenizers(
        Tokenizer.train(SENTENCES, vocab_size=53), Tokenizer.train(["der Hund sieht die Katze .", "ja"], vocab_size=41)
    )
    sizes = {"d_model": 12, "d_ff": 17, "num_heads": 3, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(
        tokenizers.target.vocab_size,
        tokenizers.source.vocab_size,
        tied_embeddings="none",
        positions="learned",
        max_positions=13,
        **sizes,
    )
    translator = Translator(model, tokenizers, DecodeConfig(beam_width=3, extra_length=5))
    served = ServingTranslator(translator)
    texts = [*SENTENCES, "", "the dog sees " * 50]
    write(served, tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    answer = loaded.signatures["translate_nbest"](text=strings(texts))
    for found, scores, expected in zip(
        answer["translations"].numpy(), answer["scores"].numpy(), translator.translate_nbest(texts, 3), strict=True
    ):
        assert decoded(found)[: len(expected)] == [hypothesis.text for hypothesis in expected]
        np.testing.assert_allclose(scores[: len(expected)], [x.score for x in expected], atol=1e-4)
    scored = served.score(strings(texts), strings(texts[::-1]))
    assert np.isfinite(scored["log_prob"]).all() and scored["num_tokens"][0] == 13
    ask, targets = loaded.signatures, ["der Hund", "ja", "die Katze .", "x"]
    pairs = {"source": strings(SENTENCES), "target": strings(targets)}
    scores = [one.log_prob for one in translator.score(SENTENCES, targets)]
    np.testing.assert_allclose(ask["score"](**pairs)["log_prob"], scores, atol=1e-4)
    aligned = ask["align"](**pairs)
    for row, one in enumerate(translator.align(SENTENCES, targets)):
        for name, pieces in (("source_pieces", one.source_pieces), ("target_pieces", one.target_pieces)):
            assert decoded(aligned[name][row].numpy())[: len(pieces)] == pieces
    ids, expected = pad(tokenizers.source.encode(SENTENCES)), translator.translate_nbest(SENTENCES, 1)
    assert ids.max() >= tokenizers.target.vocab_size
    scores = [best.score for best, *_ in expected]
    np.testing.assert_allclose(ask["translate_ids"](ids=tf.constant(ids))["score"], scores, atol=1e-4)
    begun = ask["translate_prefix"](text=strings(SENTENCES), prefix=strings(targets))["translation"].numpy()
    assert decoded(begun) == [one.text for one in translator.translate_prefix(SENTENCES, targets)]
    prefixed = served.translate_prefix(strings(texts), strings(["ja " * 50] * len(texts)))
    assert np.isfinite(prefixed["score"]).all()


def test_pieces_that_only_the_model_has_are_never_written_and_count_for_nothing(rng):
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=31)
    sizes = {"d_model": 12, "d_ff": 17, "num_heads": 3, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(tokenizer.vocab_size + 300, **sizes)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    translator = Translator(model, tokenizer, DecodeConfig(beam_width=3, extra_length=3))
    served, texts, seeds = ServingTranslator(translator), strings(SENTENCES), np.arange(4)
    answers = {
        "search": (served.translate(texts), [best for best, *_ in translator.translate_nbest(SENTENCES, 1)]),
        "sample": (served.sample(texts, np.ones(4, np.float32), seeds), translator.sample(SENTENCES, seeds)),
    }
    for found, expected in answers.values():
        assert decoded(found["translation"].numpy()) == [one.text for one in expected]
        np.testing.assert_allclose(found["score"], [one.score for one in expected], atol=1e-4)
    scored, expected = served.score(texts, texts[::-1]), translator.score(SENTENCES, SENTENCES[::-1])
    np.testing.assert_allclose(scored["log_prob"], [one.log_prob for one in expected], atol=1e-3)


@pytest.mark.parametrize("wrong", [0, 2**31, 2**32 + 1])
def test_limits_that_leave_nothing_are_refused(translator, wrong):
    with pytest.raises(ValueError, match=f"`max_input_bytes` must be at least 1 .* Received: max_input_bytes={wrong}"):
        ServingTranslator(translator, max_input_bytes=wrong)


def test_the_signature_of_xla_translates_alike_and_only_it_is_compiled(translator, tmp_path):
    served = ServingTranslator(translator, xla=True)
    write(served, tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    texts = strings([*SENTENCES, "", "the dog " * 40])
    plain, compiled = (loaded.signatures[name](text=texts) for name in ("serving_default", "translate_xla"))
    assert plain["translation"].numpy().tolist() == compiled["translation"].numpy().tolist()
    np.testing.assert_allclose(plain["score"], compiled["score"], atol=1e-4)
    graph = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    must_compile = [f.signature.name for f in graph.library.function if f.attr["_XlaMustCompile"].b]
    assert len(must_compile) == 1
    nodes = [node.op for function in graph.library.function for node in function.node_def]
    assert not any(name.startswith("Xla") for name in nodes)  # a server may not know it, and would refuse them all


def test_every_operation_is_known_to_a_server(exported):
    names = operations(exported)
    assert any(name.startswith("Sentencepiece") for name in names)  # of tensorflow_text; all others are of the core
    for name in names:
        assert op_def_registry.get(name) is not None, name
        assert not name.startswith("Xla") and "PyFunc" not in name
    graph = SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    for function in graph.library.function:
        assert not function.attr["_XlaMustCompile"].b


def test_every_weight_is_stored_once_and_nothing_else(exported, translator):
    variables = tf.train.list_variables(str(exported / "variables" / "variables"))
    stored = sorted(shape for name, shape in variables if not name.startswith("_CHECKPOINTABLE"))
    assert stored == sorted(list(weight.shape) for weight in translator.model.weights)  # so no optimizer
    size = sum(path.stat().st_size for path in (exported / "variables").glob("*.data-*"))
    weights = 4 * translator.model.count_params()
    assert weights <= size <= 1.02 * weights + len(translator.tokenizers.source.model_bytes)
    graph = SavedModel.FromString((exported / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    values = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    constants = [value.ByteSize() for value in values if tf.as_dtype(value.dtype).is_floating]
    smallest = min(weight.nbytes for weight in map(np.asarray, translator.model.weights) if weight.ndim == 2)
    assert len(constants) > 100 and max(constants) < smallest  # so no weight is in the graph
    assert [node.op for node in graph.node].count("SentencepieceOp") == 1


def test_the_metadata_says_what_it_is(exported, translator):
    metadata = json.loads((exported / "assets.extra" / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["tensorflow"] == tf.__version__
    assert metadata["operations"] == operations(exported)
    assert metadata["tokenizers"]["source"] == translator.tokenizers.source.model_hash
    assert metadata["limits"]["extra_length"] == translator.decode.extra_length
    assert metadata["limits"]["max_input_tokens"] == translator.decode.max_input_length
    assert metadata["model"]["validation"]


def test_joined_and_padded_requests_are_answered_as_single_ones(exported):
    """As TF Serving does: its session, requests one after the other in a batch, filled up with row 0."""
    requests = [["the dog sees the cat ."], ["", "a small house"], ["he does not see the old man ."]]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        model = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(exported))
        signature = model.signature_def["serving_default"]
        outputs = {name: tensor.name for name, tensor in signature.outputs.items()}

        def call(texts):
            encoded = [text.encode() for text in texts]
            answer = session.run(outputs, {signature.inputs["text"].name: encoded})
            return decoded(answer["translation"]), answer["score"].tolist()

        joined = [text for request in requests for text in request]
        texts, scores = call(joined + joined[:1] * (8 - len(joined)))
        single = [call(request) for request in requests]
    assert texts[: len(joined)] == [text for answer, _ in single for text in answer]
    assert scores[: len(joined)] == pytest.approx([score for _, answer in single for score in answer], abs=1e-4)


def test_no_two_of_the_best_translations_are_equal():
    tokenizer = Tokenizer.train(["aaa aa a ab ba"] * 9, vocab_size=12)
    keras.utils.set_random_seed(5)
    model = Transformer(
        tokenizer.vocab_size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
    )
    translator = Translator(model, Tokenizers(tokenizer, tokenizer), DecodeConfig(beam_width=30, extra_length=4))
    texts = ["a", "ab", "aaa ba", ""]
    answer = ServingTranslator(translator).signatures()["translate_nbest"](text=strings(texts))
    for found, scores, expected in zip(
        answer["translations"].numpy(), answer["scores"].numpy(), translator.translate_nbest(texts, 30), strict=True
    ):
        assert decoded(found) == [one.text for one in expected] + [""] * (30 - len(expected))
        np.testing.assert_allclose(scores[: len(expected)], [one.score for one in expected], atol=1e-4)
        assert (scores[len(expected) :] == tf.float32.min).all() and len(expected) < 30


def test_the_signature_of_xla_has_learned_positions_for_all_that_it_reads(translator):
    model = Transformer(
        translator.model.vocab_size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
        positions="learned", max_positions=13,
    )  # fmt: skip
    served = ServingTranslator(Translator(model, translator.tokenizers), xla=True)
    plain, compiled = (method(strings(SENTENCES)) for method in (served.translate, served.translate_xla))
    assert plain["translation"].numpy().tolist() == compiled["translation"].numpy().tolist()
    np.testing.assert_allclose(plain["score"], compiled["score"], atol=1e-4)
