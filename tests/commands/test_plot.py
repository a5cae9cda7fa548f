"""Pictures of a run."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("matplotlib", reason="pictures need the extra plots")

from keras_transformer.__main__ import main
from keras_transformer.model import AttentionMaps
from keras_transformer.translator import Alignment, Translator
from tests.integration.runs import ROOT


@pytest.mark.parametrize(
    "arguments",
    [
        ["curve"],
        ["schedule"],
        ["positions"],
        ["attention", "--source", "Anna sleeps."],
        ["attention", "--source", "Anna sleeps.", "--target", "Anna schläft.", "--layer", "1", "--heads"],
    ],
)
def test_every_kind_is_a_png(finished_run, tmp_path, arguments, capsys):
    path = tmp_path / "picture.png"
    assert main(["plot", *arguments, "--workdir", str(finished_run), "--output", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000
    assert capsys.readouterr().out == f"{path}\n"


@pytest.mark.parametrize("name, begins", [("a.svg", b"<?xml"), ("b.PDF", b"%PDF")])
def test_a_picture_is_what_its_name_says(finished_run, tmp_path, name, begins):
    assert main(["plot", "schedule", "--workdir", str(finished_run), "--output", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_a_full_disk_is_said_with_the_path(finished_run, capsys):
    assert main(["plot", "schedule", "--workdir", str(finished_run), "--output", "/dev/full"]) == 1
    assert "No space left on device: '/dev/full'" in capsys.readouterr().err


def test_another_name_is_refused_and_the_file_is_left_alone(finished_run, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["plot", "schedule", "--workdir", str(finished_run), "--output", str(tmp_path / "notes.txt")]) == 2
    assert "must end with .png, .svg, .pdf" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("given", [["--source", ""], ["--target", "a"], ["--layer", "0"], ["--heads"]])
def test_what_belongs_to_attention_is_refused_for_another_picture(finished_run, tmp_path, given, capsys):
    words = ["plot", "curve", "--workdir", str(finished_run), "--output", str(tmp_path / "x.png"), *given]
    assert main(words) == 2 and not (tmp_path / "x.png").exists()
    assert f"{given[0]} belongs to plot attention. Received: plot curve." in capsys.readouterr().err


def test_learned_positions_are_those_of_both_sides(finished_run, tmp_path, monkeypatch):
    tables = {side: np.full((3, 4), value) for side, value in (("source", 1.0), ("target", 2.0))}
    layers = {f"{side}_positions": SimpleNamespace(weights=[tf.constant(table)]) for side, table in tables.items()}
    config = SimpleNamespace(model=SimpleNamespace(positions="learned"))
    drawn = {}
    monkeypatch.setattr("keras_transformer.commands.plot._config", lambda options: config)
    monkeypatch.setattr(Translator, "load", lambda workdir: SimpleNamespace(model=SimpleNamespace(**layers)))
    monkeypatch.setattr("keras_transformer.plots.positions", lambda encodings, path: drawn.update(encodings))
    assert main(["plot", "positions", "--workdir", str(finished_run), "--output", str(tmp_path / "x.png")]) == 0
    assert drawn.keys() == tables.keys() and all((drawn[side] == tables[side]).all() for side in tables)


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["attention"], 2, "needs a sentence"),
        (["attention", "--source", "a", "--layer", "9"], 1, "must be between 1 and"),
        (["curve", "--workdir", "/nowhere"], 1, "config.json"),
        (["curve", "--workdir", str(ROOT / "examples/tatoeba_en_de/model")], 1, "log.jsonl, missing or without a re"),
        (["schedule", "--workdir", str(ROOT / "examples/tatoeba_en_de/model")], 1, "saved or packed alone"),
    ],
)
def test_what_is_missing_is_said(finished_run, tmp_path, arguments, code, message, capsys):
    assert main(["plot", "--workdir", str(finished_run), *arguments, "--output", str(tmp_path / "x")]) == code
    assert message in capsys.readouterr().err


def test_the_layers_that_can_be_asked_for_are_those_of_both_sides(finished_run, monkeypatch, tmp_path, capsys):
    maps = AttentionMaps(*(np.full((depth, 2, 3, 3), 1 / 3) for depth in (2, 3, 3)))
    alignment = Alignment(["a", "b", "</s>"], ["c", "d", "</s>"], maps)
    translator = SimpleNamespace(align=lambda *_: [alignment])
    monkeypatch.setattr(Translator, "load", lambda workdir: translator)
    arguments = [
        "plot",
        "attention",
        "--workdir",
        str(finished_run),
        "--source",
        "a b",
        "--target",
        "c d",
        "--layer",
        "3",
        "--output",
        str(tmp_path / "x"),
    ]
    assert main(arguments) == 1 and "between 1 and 2" in capsys.readouterr().err
    assert main([*arguments[:-1], str(tmp_path / "x.png"), "--heads"]) == 0


def test_the_attention_of_a_layer_that_is_counted_from_one_is_drawn_or_the_mean(finished_run, monkeypatch, tmp_path):
    layers = np.arange(3.0)[:, None, None, None] + np.zeros((3, 2, 3, 3))  # all weights of the first are 0, ...
    alignment = Alignment(["a", "b", "</s>"], ["c", "d", "</s>"], AttentionMaps(layers, layers, layers))
    monkeypatch.setattr(Translator, "load", lambda workdir: SimpleNamespace(align=lambda *_: [alignment]))
    drawn = []
    monkeypatch.setattr("keras_transformer.plots.attention", lambda weights, *_, **__: drawn.append(weights.max()))
    monkeypatch.setattr("keras_transformer.plots.attention_of_sentence", lambda *_, layer, **__: drawn.append(layer))
    named = "--workdir", str(finished_run), "--source", "a b", "--target", "c d", "--output", str(tmp_path / "x.png")
    for options in ([], ["--layer", "3"], ["--heads"], ["--heads", "--layer", "1"], ["--heads", "--layer", "3"]):
        assert main(["plot", "attention", *named, *options]) == 0
    assert drawn == [None, 2, 1.0, 0.0, 2.0]
