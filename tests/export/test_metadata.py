import json

import pytest

from export import contents, metadata


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ("demo", ("en", "de")),
        ("tfds:wmt14_translate/de-en", ("de", "en")),
        ("tfds:opus/medical/de-en", ("de", "en")),
        ("tfds:flores/eng-deu", ("eng", "deu")),
        (["a.en", "a.de"], ("en", "de")),
        (["a.tok.en.gz", "b/train.de"], ("en", "de")),
        (["a.en.GZ", "a.de.GZ"], ("en", "de")),
        ([["a.en", "b.en"], ["a.de", "b.de.gz"]], ("en", "de")),
        ([["a.en", "b.fr"], ["a.de", "b.de"]], None),
        (["train.src", "train.tgt"], None),
        (["en.txt", "de.txt"], None),
        (["en", "de"], None),
        (["a.en", "b.en"], None),
        ("tfds:opus/medical/de-de", None),
        (["a.EN", "a.DE"], None),
        (["a.english", "a.german"], None),
        ("corpus.en-de.tsv", None),
        (None, None),
    ],
)
def test_the_languages_are_those_that_the_corpus_tells(train, expected):
    assert metadata.languages({"train": train}) == (expected and dict(zip(("source", "target"), expected, strict=True)))


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        (None, None),
        ("demo", "demo"),
        ("tfds:wmt14_translate/de-en", "tfds:wmt14_translate/de-en"),
        ("/home/anna/pairs.en-de.tsv", "pairs.en-de.tsv"),
        (["/home/anna/a.en", "b/a.de.gz"], ["a.en", "a.de.gz"]),
        ([["/home/anna/a.en", "b.en"], ["/home/anna/a.de", "b.de"]], [["a.en", "b.en"], ["a.de", "b.de"]]),
    ],
)
def test_nothing_is_said_of_where_a_corpus_is(
    exported, finished_run, translator, tmp_path, monkeypatch, corpus, expected
):
    config = json.loads((finished_run / "config.json").read_text(encoding="utf-8"))
    config["data"].update(train=corpus or "demo", valid=corpus, test=corpus)
    config["train"]["start_from"] = "/home/anna/runs/first"
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr(metadata, "signatures", lambda _: {})
    monkeypatch.setattr(metadata, "operations", lambda _: [])
    metadata.write(tmp_path, tmp_path, translator, {})
    text = (tmp_path / "assets.extra" / "metadata.json").read_text(encoding="utf-8")
    found = json.loads(text)["config"]
    assert found["data"] == {**config["data"], "train": expected or "demo", "valid": expected, "test": expected}
    assert found["train"] == {**config["train"], "start_from": "first"} and "anna" not in text


def test_a_reversed_corpus_has_the_languages_reversed():
    assert metadata.languages({"train": "demo", "reverse": True}) == {"source": "de", "target": "en"}


def test_the_metadata_names_languages_scores_and_signatures(exported, finished_run):
    found = json.loads((exported / "assets.extra" / "metadata.json").read_text(encoding="utf-8"))
    assert found["format"] == metadata.FORMAT
    assert found["languages"] == {"source": "en", "target": "de"}
    assert found["model"] == json.loads((finished_run / "model.json").read_text(encoding="utf-8"))
    assert set(found["signatures"]) == set(contents.signatures(exported))
    default = found["signatures"]["serving_default"]
    assert default["inputs"] == {"text": {"dtype": "string", "shape": [None]}}
    assert default["outputs"]["score"] == {"dtype": "float32", "shape": [None]}


def test_two_exports_of_one_run_have_the_same_metadata(exported, finished_run, translator, tmp_path):
    before = json.loads((exported / "assets.extra" / "metadata.json").read_text(encoding="utf-8"))
    (tmp_path / "saved_model.pb").write_bytes((exported / "saved_model.pb").read_bytes())
    metadata.write(tmp_path, finished_run, translator, before["limits"])
    assert json.loads((tmp_path / "assets.extra" / "metadata.json").read_text(encoding="utf-8")) == before


def test_a_saved_translator_has_metadata_too(translator, tmp_path, monkeypatch):
    translator.save(tmp_path)
    monkeypatch.setattr(metadata, "signatures", lambda _: {})
    monkeypatch.setattr(metadata, "operations", lambda _: [])
    metadata.write(tmp_path, tmp_path, translator, {})
    assert json.loads((tmp_path / "assets.extra" / "metadata.json").read_text())["languages"] is None
