"""Which words belong together, a line for every pair."""

import gzip
import io
import sys
from types import SimpleNamespace

import pytest

from keras_transformer.__main__ import main
from tests.integration.runs import ROOT

MODEL = str(ROOT / "examples" / "tatoeba_en_de" / "model")
SOURCES = ["Tom sleeps.", "", "I don't want to wait that long.", "Anna", "Yesterday I saw a dog."]
TARGETS = ["Tom schläft.", "etwas", "So lange möchte ich nicht warten.", "", "Gestern sah ich einen Hund."]
# I-ich don't-nicht want-möchte wait-warten that-So long-lange
KNOWN = {0: "0-0 1-1", 2: "0-3 1-4 2-2 4-5 5-0 6-1", 4: "0-0 1-2 2-1 3-3 4-4"}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a").write_text("".join(line + "\n" for line in SOURCES))
    (tmp_path / "b.gz").write_bytes(gzip.compress("".join(line + "\n" for line in TARGETS).encode()))
    (tmp_path / "both").write_text("".join(f"{a}\t{b}\n" for a, b in zip(SOURCES, TARGETS, strict=True)))
    return tmp_path


def test_words_that_mean_the_same_are_linked_and_a_blank_side_has_no_links(files):
    options = ("--source", files / "a", "--target", files / "b.gz", "--output", files / "links")
    assert main(["align", "--workdir", MODEL, *map(str, options)]) == 0
    said = (files / "links").read_text().split("\n")
    assert len(said) == 6 and said[1] == said[3] == said[5] == ""
    for row, expected in KNOWN.items():
        assert len(set(said[row].split()) & set(expected.split())) >= len(expected.split()) - 1, said[row]
        links = [tuple(map(int, link.split("-"))) for link in said[row].split()]
        assert links == sorted(links)


def test_standard_input_line_by_line_says_the_same(files, capsysbinary, monkeypatch):
    said = []
    for options in (["--input", str(files / "both")], ["--buffer-lines", "1"]):
        typed = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO((files / "both").read_bytes())), isatty=bool)
        monkeypatch.setattr(sys, "stdin", typed)
        assert main(["align", "--workdir", MODEL, *options]) == 0
        said.append(capsysbinary.readouterr().out)
    assert said[0] == said[1] and said[0].count(b"\n") == len(SOURCES)


def test_pairs_that_do_not_fit_are_an_error(finished_run, files, capsys):
    (files / "short").write_text("one\n")
    for arguments, code, message in [
        (("--source", files / "a", "--target", files / "short"), 1, "must have the same number of lines"),
        (("--input", files / "a"), 1, "Line 1 must be SOURCE TAB TARGET. Received: 0 tabs"),
        (("--target", files / "b.gz"), 2, "--source and --target"),
        (("--set", "model.d_model=3"), 2, "decode.FIELD=VALUE"),
        (("--input", files / "both", "--output", files / "both"), 1, "The output must not be a file that is read"),
    ]:
        assert main(["align", "--workdir", str(finished_run), *map(str, arguments)]) == code
        assert message in capsys.readouterr().err
