"""What is said reaches who listens, and harms nobody where nobody does."""

import errno
import io
import os
import subprocess
import sys

from keras_transformer.screen import say, warn


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


def test_a_character_that_the_stream_cannot_write_is_said_by_its_number(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))
    say("é █")
    assert shown.getvalue() == "é \\u2588\n".encode("latin-1")
