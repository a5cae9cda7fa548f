"""What becomes of a command: an exit code, and one line where its user can mend it."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from export.versions import ExportError
from keras_transformer import ConfigError
from keras_transformer.commands.exit_codes import exit_code_of
from keras_transformer.training.checkpoints import CheckpointError


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
        (ValueError("no such file"), 1, "no such file"),
        (CheckpointError("another model"), 1, "another model"),
        (ExportError("version 2 exists"), 1, "version 2 exists"),
        (ImportError("no package"), 1, "no package"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
        (MemoryError(), 1, "MemoryError"),
        (tf.errors.ResourceExhaustedError(None, None, "no room for [8,9]"), 1, "no room for [8,9]"),
    ],
)
def test_what_its_user_can_mend_is_one_line(capsys, error, code, said):
    assert exit_code_of(raising(error), None) == code
    assert capsys.readouterr() == ("", f"error: {said}\n")


def test_an_interruption_is_quiet(capsys):
    assert exit_code_of(raising(KeyboardInterrupt()), None) == 130
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_the_program_has_its_traceback():
    with pytest.raises(ZeroDivisionError):
        exit_code_of(raising(ZeroDivisionError()), None)


def test_a_short_output_that_nobody_reads_is_no_drama(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # so that it is written at the end of the process
    code = (
        "from keras_transformer.commands.exit_codes import exit_code_of as run; exit(run(lambda _: print('a') or 0, 0))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as broken:
        done = subprocess.run([sys.executable, "-c", code], stdout=broken, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 141 and b"BrokenPipe" not in done.stderr
