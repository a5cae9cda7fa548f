"""Standard streams that are closed, or have few characters."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from keras_transformer_cli.streams import show_any_character
from tests.processes import environment

ROOT = Path(__file__).parents[2]


def test_a_process_without_standard_streams_has_no_encoding(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    show_any_character()


def test_what_stands_for_standard_output_in_a_notebook_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    show_any_character()
    print("é")
    assert sys.stdout.getvalue() == "é\n"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_a_character_that_the_encoding_does_not_have_is_written_by_its_number(monkeypatch, encoding):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding=encoding))
    show_any_character()
    print("é █ \ud800", flush=True)
    assert shown.getvalue().decode(encoding) == ("é \\u2588 \\ud800\n" if encoding == "latin-1" else "é █ \\ud800\n")


WRITES = """
import os, subprocess, sys
from keras_transformer_cli.importing import without_notes
with without_notes():
    pass
with open(sys.argv[1], "wb") as file:
    os.write(2, b"native code's\\n")
    subprocess.run(["sh", "-c", "set -e; echo said; echo complained >&2"], check=True)
    print("an error", file=sys.stderr)
    file.write(b"ours\\n")
assert sys.stdin is sys.stdout is None
"""


def test_nothing_gets_the_number_of_a_closed_stream(tmp_path):
    program, output = tmp_path / "program.py", tmp_path / "output"
    program.write_text(WRITES)
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, program, output]
    done = subprocess.run(command, env=environment(ROOT), timeout=60)
    assert done.returncode == 0 and output.read_bytes() == b"ours\n"
