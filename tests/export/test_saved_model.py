import contextlib
import json
import os
import platform
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from export import ExportError, export_saved_model, saved_model, warmup
from keras_transformer.translator import Translator
from tests.small import ending_run

TEXTS = ["the dog sees the cat .", ""]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_next_version_is_the_next_integer(quick, finished_run, tmp_path):
    (tmp_path / "9").mkdir()
    (tmp_path / "12x").mkdir()
    assert export_saved_model(finished_run, tmp_path) == tmp_path / "10"
    assert export_saved_model(finished_run, tmp_path, 3) == tmp_path / "3"
    assert names(tmp_path) == ["10", "12x", "3", "9", "serving"]
    assert names(tmp_path / "10") == ["assets", "assets.extra", "fingerprint.pb", "saved_model.pb", "variables"]


def test_a_server_is_told_of_the_new_version(quick, finished_run, tmp_path):
    for version in (1, 2):
        export_saved_model(finished_run, tmp_path)
        assert f"versions: {version}\n" in (tmp_path / "serving" / "models.config").read_text(encoding="utf-8")


def test_a_name_that_no_server_can_have_is_refused_before_anything_is_done(tmp_path):
    with pytest.raises(ValueError, match="names the model.*Received: 'my model'"):
        export_saved_model(tmp_path / "no run", tmp_path / "my model")
    assert names(tmp_path) == []


def test_what_is_asked_of_an_export_reaches_the_translator_and_what_is_served(tmp_path, monkeypatch):
    asked = []

    def serve(translator, **options):
        asked.append(options)
        raise KeyError("enough")

    monkeypatch.setattr(Translator, "load", lambda *runs, **decode: asked.append((*runs, decode)))
    monkeypatch.setattr("export.module.ServingTranslator", serve)
    options = dict(ensemble=["b"], max_input_bytes=9, xla=True, alpha=1.5, beam_width=2)
    with pytest.raises(KeyError, match="enough"):
        export_saved_model("a", tmp_path / "demo", **options)
    assert asked == [(Path("a"), Path("b"), dict(alpha=1.5, beam_width=2)), dict(max_input_bytes=9, xla=True)]


def test_requests_to_warm_up_and_metadata_are_there_when_the_version_is_checked(
    quick, finished_run, tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(saved_model, "compare", lambda folder, *_: seen.extend(names(folder / "assets.extra")))
    export_saved_model(finished_run, tmp_path)
    assert seen == ["metadata.json", "tf_serving_warmup_requests"]


def test_what_a_server_does_not_read_is_not_compared(finished_run, tmp_path):
    path = export_saved_model(finished_run, tmp_path, max_input_bytes=3)
    assert json.loads((path / "assets.extra" / "metadata.json").read_text())["limits"]["max_input_bytes"] == 3


def test_an_ensemble_is_exported_as_one_translator(finished_run, tmp_path):
    other = ending_run(finished_run, tmp_path / "other")
    model = Translator.load(other).model
    model.set_weights([weight[::-1] for weight in model.get_weights()])
    model.save(other / "model.keras")
    path = export_saved_model(finished_run, tmp_path / "both", ensemble=[other])  # compares it with the translator
    translator, loaded = Translator.load(finished_run, other), tf.saved_model.load(str(path))
    answer = loaded.signatures["serving_default"](text=tf.constant(TEXTS))
    expected = [best for best, *_ in translator.translate_nbest(TEXTS, 1)]
    assert [text.decode() for text in answer["translation"].numpy()] == [best.text for best in expected]
    assert answer["score"].numpy() == pytest.approx([best.score for best in expected], abs=1e-4)
    assert expected[0].score != pytest.approx(Translator.load(finished_run).translate_nbest(TEXTS, 1)[0][0].score)
    assert "align" not in loaded.signatures
    metadata = json.loads((path / "assets.extra" / "metadata.json").read_text())
    [of_other] = metadata["ensemble"]
    assert of_other["config"] == metadata["config"] and metadata["num_parameters"] == 2 * model.count_params()
    assert of_other["model"] == json.loads((other / "model.json").read_text())


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("aü", 2, "a"),
        ("ü", 1, ""),
        ("👩a", 3, ""),
        ("👩a", 4, "👩"),
        ("a\ufffd", 4, "a\ufffd"),
    ],
)
def test_no_character_is_cut_in_the_middle(text, most, expected):
    assert saved_model.what_is_read(text, most) == expected


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ExportError, OSError])
def test_an_interrupted_export_leaves_nothing(quick, finished_run, tmp_path, monkeypatch, interruption):
    seen = []

    def interrupt(folder, *_):
        seen.extend(names(tmp_path))
        raise interruption

    monkeypatch.setattr(saved_model, "compare", interrupt)
    with pytest.raises(interruption):
        export_saved_model(finished_run, tmp_path)
    assert seen == [f".writing-1-{os.getpid()}-{platform.node()}"]  # no integer: a server does not see it
    assert names(tmp_path) == []


def test_a_full_disk_is_an_error_of_one_line_that_leaves_nothing(quick, finished_run, tmp_path, monkeypatch):
    def write(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(saved_model, "write", write)
    with pytest.raises(ExportError, match="No version could be written to .*No space left on device"):
        export_saved_model(finished_run, tmp_path)
    assert names(tmp_path) == []


def test_two_exports_of_one_version_do_not_mix(quick, exported, finished_run, tmp_path, monkeypatch):
    monkeypatch.setattr(saved_model, "compare", lambda *_: shutil.copytree(exported, tmp_path / "1"))
    with pytest.raises(ExportError, match="in the meantime"):
        export_saved_model(finished_run, tmp_path, 1)
    assert names(tmp_path) == ["1"]
    monkeypatch.setattr(saved_model, "compare", lambda *_: shutil.copytree(exported, tmp_path / "2"))
    assert export_saved_model(finished_run, tmp_path) == tmp_path / "3"
    assert names(tmp_path) == ["1", "2", "3", "serving"]


def answers_of(translator):
    """What an exported model says that is right."""
    nbest = translator.translate_nbest(TEXTS, translator.decode.beam_width)
    best = [found[0].text for found in nbest]
    return {
        "serving_default": {"translation": best, "score": [found[0].score for found in nbest]},
        "translate_nbest": {
            "translations": [[one.text for one in found] for found in nbest],
            "scores": [[one.score for one in found] for found in nbest],
        },
        "score": {"log_prob": [one.log_prob for one in translator.score(TEXTS, best)]},
    }


def test_the_same_translations_and_scores_pass(translator, monkeypatch):
    monkeypatch.setattr(saved_model, "_answers", lambda *_: answers_of(translator))
    saved_model.compare(None, translator, TEXTS, 4096)


@pytest.mark.parametrize(
    "signature, output, wrong",
    [
        ("serving_default", "translation", lambda text: text + " "),
        ("serving_default", "score", lambda score: score + 2e-4),
        ("serving_default", "score", lambda score: float("nan")),
        ("translate_nbest", "translations", lambda texts: ["another", *texts[1:]]),
        ("translate_nbest", "scores", lambda scores: [scores[0] - 0.01, *scores[1:]]),
        ("score", "log_prob", lambda log_prob: log_prob - 0.1),
    ],
)
def test_another_translation_or_score_is_refused(translator, monkeypatch, signature, output, wrong):
    answers = answers_of(translator)
    answers[signature][output][0] = wrong(answers[signature][output][0])
    monkeypatch.setattr(saved_model, "_answers", lambda *_: answers)
    with pytest.raises(ExportError, match=f"With {signature}, .* Nothing was exported"):
        saved_model.compare(None, translator, TEXTS, 4096)


@pytest.mark.parametrize(
    "found, expected, agrees", [(-1.0, -1.0002, False), (-2000.0, -2000.01, True), (-2000.0, -2000.03, False)]
)
def test_a_score_may_differ_by_what_rounding_makes_of_it(found, expected, agrees):
    with contextlib.nullcontext() if agrees else pytest.raises(ExportError, match="Nothing was exported"):
        saved_model._agree("score", "a", [("b", expected)], [("b", found)])


def test_what_does_not_load_is_refused(translator, tmp_path):
    with pytest.raises(ExportError, match="fresh process: .*SavedModel"):
        saved_model.compare(tmp_path, translator, TEXTS, 4096)


@pytest.mark.parametrize(
    "end, message",
    [
        ("os.kill(os.getpid(), 9)", "was killed, as the system does where memory runs out. Nothing was exported"),
        ("os.abort()", "fresh process: the reason"),
    ],
)
def test_it_is_said_how_the_process_that_checks_ended(translator, tmp_path, monkeypatch, end, message):
    monkeypatch.setattr(saved_model, "CHECK", tmp_path / "check.py")
    (tmp_path / "check.py").write_text(f"import os, sys; print('the reason', file=sys.stderr, flush=True); {end}")
    with pytest.raises(ExportError, match=message):
        saved_model.compare(tmp_path, translator, TEXTS, 4096)


def test_a_version_that_a_server_could_not_warm_up_is_refused(exported, translator, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "1")
    log = PredictionLog()
    log.predict_log.request.model_spec.signature_name = "missing"
    with tf.io.TFRecordWriter(str(folder / warmup.PATH)) as file:
        file.write(log.SerializeToString())
    with pytest.raises(ExportError, match="fresh process: .*missing"):
        saved_model.compare(folder, translator, TEXTS, 4096)


def test_the_sentences_of_the_check_come_with_or_without_data(finished_run, translator, tmp_path):
    tokenizer = translator.tokenizers.source
    with_data = saved_model.check_sentences(finished_run, tokenizer)
    without = saved_model.check_sentences(tmp_path, tokenizer)
    assert len(with_data) == len(without) == saved_model.NUM_SENTENCES + len(saved_model.HOSTILE)
    assert with_data != without and all(with_data[: saved_model.NUM_SENTENCES])
