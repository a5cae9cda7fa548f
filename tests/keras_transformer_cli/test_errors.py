"""What becomes of a command: an exit code, and one line where its user can mend it."""

import io
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from export.versions import ExportError
from keras_transformer import ConfigError
from keras_transformer.training.checkpoints import CheckpointError
from keras_transformer_cli.errors import exit_code_of, reason


def raising(error):
    def run(options):
        raise error

    return run


def test_the_command_gets_its_options_and_its_exit_code_is_handed_on(capsys):
    assert exit_code_of(lambda options: options + 1, 142) == 143
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("`steps` must be positive."), 2, "`steps` must be positive."),
        (ValueError("another value:\n    steps"), 1, "another value:\n    steps"),
        (CheckpointError("another model"), 1, "another model"),
        (ExportError("version 2 exists"), 1, "version 2 exists"),
        (ImportError("no package"), 1, "no package"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
        (MemoryError(), 1, "MemoryError"),
        (tf.errors.ResourceExhaustedError(None, None, "no room for [8,9]"), 1, "no room for [8,9]"),
        (tf.errors.ResourceExhaustedError(None, None, "Graph:\n\nat f\n\nno room [Op:f]"), 1, "no room"),
    ],
)
def test_what_its_user_can_mend_has_no_traceback(capsys, error, code, said):
    assert exit_code_of(raising(error), None) == code
    assert capsys.readouterr() == ("", f"error: {said}\n")


def test_a_closed_output_and_one_of_few_characters_are_no_errors(monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="utf-8"))
    assert exit_code_of(lambda: print("runs/\udcff") or 0) == 0  # a folder whose name is not UTF-8
    assert shown.getvalue() == b"runs/\\udcff\n"
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_code_of(lambda: print("runs/a") or 0) == 0


def test_an_interruption_is_quiet(capsys):
    assert exit_code_of(raising(KeyboardInterrupt()), None) == 130
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_the_program_has_its_traceback():
    with pytest.raises(ZeroDivisionError):
        exit_code_of(raising(ZeroDivisionError()), None)


def test_a_short_output_that_nobody_reads_is_no_drama(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # so that it is written at the end of the process
    code = "from keras_transformer_cli.errors import exit_code_of as run; exit(run(lambda _: print('a') or 0, 0))"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as broken:
        done = subprocess.run([sys.executable, "-c", code], stdout=broken, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 141 and b"BrokenPipe" not in done.stderr


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
