"""How likely given translations are."""

import json

import pytest

from keras_transformer.__main__ import main
from keras_transformer.translator import Translator

SOURCES = ["Anna sleeps.", "", "Tom sees the dog."]
TARGETS = ["Anna schläft.", "etwas", ""]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a").write_text("".join(line + "\n" for line in SOURCES))
    (tmp_path / "b").write_text("".join(line + "\n" for line in TARGETS))
    (tmp_path / "both").write_text("".join(f"{a}\t{b}\n" for a, b in zip(SOURCES, TARGETS, strict=True)))
    return tmp_path


def test_two_files_and_one_of_pairs_say_the_same(finished_run, files, capsysbinary):
    said = []
    for arguments in (("--source", files / "a", "--target", files / "b"), ("--input", files / "both")):
        assert main(["score", "--workdir", str(finished_run), *map(str, arguments)]) == 0
        said.append(capsysbinary.readouterr().out)
    assert said[0] == said[1]
    expected = Translator.load(finished_run).score(SOURCES, TARGETS)
    assert [float(line) for line in said[0].split()] == pytest.approx([one.log_prob for one in expected], abs=1e-4)


def test_as_many_pairs_as_wanted_are_scored_together(finished_run, files, capsysbinary, monkeypatch):
    sizes, score = [], Translator.score
    monkeypatch.setattr(Translator, "score", lambda self, *pair: sizes.append(len(pair[0])) or score(self, *pair))
    said = []
    for options in ([], ["--buffer-lines", "2"]):
        assert main(["score", "--workdir", str(finished_run), "--input", str(files / "both"), *options]) == 0
        said.append(capsysbinary.readouterr().out)
    monkeypatch.setattr("keras_transformer.commands.pairs.at_terminal", lambda: True)
    with open(files / "both") as typed:
        monkeypatch.setattr("sys.stdin", typed)
        assert main(["score", "--workdir", str(finished_run)]) == 0
    said.append(capsysbinary.readouterr().out)
    assert sizes == [3, 2, 1, 1, 1, 1]
    for other in said[1:]:
        assert [float(line) for line in other.split()] == pytest.approx([float(x) for x in said[0].split()], abs=1e-4)


def test_every_piece_has_its_score_as_json(finished_run, files, capsysbinary):
    assert main(["score", "--workdir", str(finished_run), "--input", str(files / "both"), "--json"]) == 0
    for line in capsysbinary.readouterr().out.splitlines():
        found = json.loads(line)
        assert len(found["pieces"]) == len(found["log_probs"])
        assert sum(found["log_probs"]) == pytest.approx(found["log_prob"], abs=1e-4)


def test_pairs_that_do_not_fit_are_an_error(finished_run, files, capsys):
    (files / "short").write_text("one\n")
    (files / "odd").write_text("a\tb\nonly one\n")
    for arguments, code, message in [
        (("--source", files / "a", "--target", files / "short"), 1, "short ends after 1"),
        (("--input", files / "odd"), 1, "Line 2 must be SOURCE TAB TARGET. Received: 0 tabs"),
        (("--source", files / "a"), 2, "--source and --target"),
    ]:
        assert main(["score", "--workdir", str(finished_run), *map(str, arguments)]) == code
        assert message in capsys.readouterr().err


def test_the_pairs_before_one_that_does_not_fit_have_their_scores(finished_run, files, capsys):
    (files / "odd").write_text("Anna sleeps.\tAnna schläft.\nonly one\n")
    assert main(["score", "--workdir", str(finished_run), "--input", str(files / "odd")]) == 1
    assert float(capsys.readouterr().out) < 0
