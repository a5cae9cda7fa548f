import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry

from export import saved_model
from export.module import Limits, ServingTranslator
from keras_transformer import Transformer
from keras_transformer.config import DecodeConfig
from keras_transformer.tokenizer import Tokenizer, Tokenizers
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
    assert set(signatures) == {"serving_default", "translate_nbest", "score", "translate_ids"}


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
        assert decoded(texts) == [hypothesis.text for hypothesis in expected]
        np.testing.assert_allclose(scores, [hypothesis.score for hypothesis in expected], atol=1e-4)
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
    ids = tf.constant([[5, -1, 3], [5, 2**31 - 1, 3], [5, 1, 3]], tf.int32)
    answer = signatures["translate_ids"](ids=ids)
    assert np.ptp(answer["score"]) < 1e-5 and (answer["ids"] == answer["ids"][0]).all()


def test_the_log_probability_is_that_of_the_model(signatures, translator):
    sources, targets = SENTENCES, ["der Hund", "ein kleines Haus ist hier .", "", "x"]
    answer = signatures["score"](source=strings(sources), target=strings(targets))
    encode = translator.tokenizers.source.encode, translator.tokenizers.target.encode
    for i, (source, target) in enumerate(
        zip(*(side([*texts]) for side, texts in zip(encode, (sources, targets), strict=True)), strict=True)
    ):
        logits = translator.model((tf.constant([source]), tf.constant([[2, *target[:-1]]])))
        log_probs = tf.nn.log_softmax(logits)[0].numpy()[np.arange(len(target)), target]
        assert answer["num_tokens"][i] == len(target)
        assert answer["log_prob"][i] == pytest.approx(log_probs.sum(), abs=1e-3)


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


def test_an_empty_batch_has_an_empty_answer(signatures, translator):
    nothing = strings([])
    assert [len(x) for x in signatures["serving_default"](text=nothing).values()] == [0, 0]
    answer = signatures["translate_nbest"](text=nothing)
    assert answer["translations"].shape == answer["scores"].shape == (0, translator.decode.beam_width)
    assert [len(x) for x in signatures["score"](source=nothing, target=nothing).values()] == [0, 0]
    for width in (0, 5):
        assert [len(x) for x in signatures["translate_ids"](ids=tf.zeros((0, width), tf.int32)).values()] == [0] * 3
    assert signatures["translate_ids"](ids=tf.zeros((2, 0), tf.int32))["lengths"].tolist() == [0, 0]


def test_what_is_too_long_is_cut_at_a_character_and_at_a_token(translator):
    served = ServingTranslator(translator, Limits(max_input_bytes=7, max_input_tokens=3))
    cleaned = served._clean(strings(["ääää", "aäää", "a👩👩", "äää\ufffd", b"\xff"]))
    assert decoded(cleaned.numpy()) == ["äää", "aäää", "a👩", "äää", "\ufffd"]
    ids = served._source_ids(strings(["a b c", "a"])).numpy()
    assert ids.shape[1] == 3 and ids[0, -1] == 3 and 3 in ids[1]


def test_two_vocabularies_and_learned_positions():
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
    answer = served.signatures()["translate_nbest"](text=strings(texts))
    for found, scores, expected in zip(
        answer["translations"].numpy(), answer["scores"].numpy(), translator.translate_nbest(texts, 3), strict=True
    ):
        assert decoded(found)[: len(expected)] == [hypothesis.text for hypothesis in expected]
        np.testing.assert_allclose(scores[: len(expected)], [x.score for x in expected], atol=1e-4)
    scored = served.score(strings(texts), strings(texts[::-1]))
    assert np.isfinite(scored["log_prob"]).all() and scored["num_tokens"][0] == 13


def test_limits_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match="`max_input_tokens` must be at least 1"):
        Limits(max_input_tokens=0)


def test_every_operation_is_known_to_a_server(exported):
    operations = saved_model.operations(exported)
    assert any(
        name.startswith("Sentencepiece") for name in operations
    )  # of tensorflow_text; all others are of the core
    for name in operations:
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
    assert size <= 1.02 * 4 * translator.model.count_params() + len(translator.tokenizers.source.model_bytes)


def test_the_metadata_says_what_it_is(exported, translator):
    metadata = json.loads((exported / "assets.extra" / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["tensorflow"] == tf.__version__
    assert metadata["operations"] == saved_model.operations(exported)
    assert metadata["tokenizers"]["source"] == translator.tokenizers.source.model_hash
    assert metadata["limits"]["extra_length"] == translator.decode.extra_length
    assert metadata["limits"]["max_input_tokens"] == 512
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
