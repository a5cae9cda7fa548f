"""What is said reaches who listens, and harms nobody where nobody does."""

import errno
import io
import os
import subprocess
import sys

import pytest

from keras_transformer.screen import reason, say, show_any_character, warn


def test_a_text_is_there_at_once(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    code = "import os\nfrom keras_transformer.screen import *\nsay('a result'), warn('a step', end=''), os._exit(0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert done.stdout == b"a result\n" and done.stderr.endswith(b"a step")


def test_a_process_without_standard_streams_says_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    say("a result")
    warn("a step")
    show_any_character()


def test_a_stream_that_nobody_reads_any_more_is_silent_to_the_end_of_the_process():
    lines = "from keras_transformer.screen import say, warn", *["say('a line'), warn('a step')"] * 9, "say('x' * 10**6)"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as broken:
        ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], stdout=broken, stderr=broken, timeout=120)
    assert ended.returncode == 0


def test_what_cannot_be_written_for_now_is_tried_again_with_the_next_line(monkeypatch):
    shown, full = [], iter([True, False])

    class Disk(io.StringIO):
        def write(self, text):
            if text != "\n" and next(full):
                raise OSError(errno.ENOSPC, "No space left on device")
            shown.append(text)

    monkeypatch.setattr(sys, "stdout", Disk())
    say("first")
    say("second")
    assert shown == ["second", "\n"]


def test_what_stands_for_standard_output_in_a_notebook_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    show_any_character()
    say("é")
    assert sys.stdout.getvalue() == "é\n"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_a_character_that_the_encoding_does_not_have_is_written_by_its_number(monkeypatch, encoding):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding=encoding))
    show_any_character()
    say("é █ \ud800")
    assert shown.getvalue().decode(encoding) == ("é \\u2588 \\ud800\n" if encoding == "latin-1" else "é █ \\ud800\n")


@pytest.mark.parametrize(
    "message, expected",
    [
        ("Connection reset by peer", "Connection reset by peer"),
        ("{{function_node __wrapped__F_device_/job:a}} Not a directory [Op:F] name: ", "Not a directory"),
        ("Graph execution error:\n\nDetected at node f\n  File x\n\nSocket closed\n\t [[{{node f}}]]", "Socket closed"),
        ("Ended by: the tasks:\n/job:worker/task:1\nmore", "Ended by: the tasks: /job:worker/task:1"),
        (
            "2 root error(s) found.\n  (0) UNAVAILABLE: closed\n  (1) other",
            "2 root error(s) found. (0) UNAVAILABLE: closed",
        ),
        ("", ""),
    ],
)
def test_the_reason_of_an_error_of_tensorflow_is_one_line(message, expected):
    assert reason(message) == expected
