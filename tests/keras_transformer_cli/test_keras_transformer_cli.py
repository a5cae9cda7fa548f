"""The console command, which is the same as python -m keras_transformer."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("closed", ["", " 2>&-"])
def test_the_command_says_nothing_but_what_was_asked(closed):
    command = f"{sys.executable} -c 'import keras_transformer_cli; keras_transformer_cli.main()' score --help{closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, cwd=ROOT, timeout=60)
    assert done.stdout.startswith(b"usage: keras-transformer score") and done.stderr == b""


@pytest.mark.parametrize("command, level", [("score", b"3"), ("train", b"1")])  # 1: warnings and errors
@pytest.mark.parametrize("door", ["-m keras_transformer", "-c 'import keras_transformer_cli as c; c.main()'"])
def test_only_training_shows_warnings_whichever_door_was_taken(tmp_path, door, command, level):
    says_what_is_set = "import os; os.write(1, os.environ['TF_CPP_MIN_LOG_LEVEL'].encode()); os._exit(0)"
    (tmp_path / "tensorflow.py").write_text(says_what_is_set, encoding="utf-8")
    of_child = environment(tmp_path, ROOT)
    of_child.pop("TF_CPP_MIN_LOG_LEVEL", None)
    shell = ["sh", "-c", f"{sys.executable} {door} {command}"]
    assert subprocess.run(shell, capture_output=True, env=of_child, cwd=tmp_path, timeout=60).stdout == level
