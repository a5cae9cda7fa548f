"""One line in, one line out."""

import argparse
import io
import sys
from types import SimpleNamespace

import pytest

from keras_transformer.commands import translate
from keras_transformer.translator import Translator


def run(workdir, *arguments):
    parser = argparse.ArgumentParser()
    translate.add_arguments(parser)
    return translate.run(parser.parse_args(["--workdir", str(workdir), *arguments]))


def test_files_are_translated_line_by_line(finished_run, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes("Anna sleeps.\n\n  \nThe\u2028dog.\r\nno last newline \xe9".encode("latin-1", "replace"))
    assert run(finished_run, "--input", str(source), "--output", str(target)) == 0
    lines = target.read_bytes().split(b"\n")
    assert len(lines) == 6 and lines[-1] == b"" and lines[1] == lines[2] == b""


def test_standard_input_goes_to_standard_output(finished_run, monkeypatch):
    standard_input = SimpleNamespace(buffer=io.BytesIO(b"Anna sleeps.\nAnna sleeps.\n"))
    standard_output = SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr(sys, "stdin", standard_input)
    monkeypatch.setattr(sys, "stdout", standard_output)
    assert run(finished_run) == 0
    expected = Translator.load(finished_run).translate(["Anna sleeps."])[0]
    assert standard_output.buffer.getvalue().decode() == f"{expected}\n{expected}\n"


@pytest.mark.parametrize(
    "text, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xff\n", ["\ufffd"]),
        (b"\xef\xbb\xbfa\r\nb\r\n", ["a", "b"]),
    ],
)
def test_lines_end_with_newlines_alone(tmp_path, text, lines):
    path = tmp_path / "in.txt"
    path.write_bytes(text)
    assert translate.read_lines(str(path)) == lines


def test_a_folder_without_a_model_is_an_error_in_one_line(tmp_path, capsys):
    assert run(tmp_path) == 1
    assert "model.keras" in capsys.readouterr().err
