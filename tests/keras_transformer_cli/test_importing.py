"""Every command ends quietly when Ctrl-C comes while TensorFlow is being imported."""

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "keras-transformer": ["-c", "import sys, keras_transformer_cli; sys.exit(keras_transformer_cli.main())", "--help"],
    "train_keras.py": [str(ROOT / "train_keras.py"), "--workdir", "nowhere"],
    "python -m keras_transformer": ["-m", "keras_transformer", "--help"],
    "export": ["-m", "export", "--workdir", "nowhere", "--to", "nowhere"],
}
IMPORTS = {
    "export.serve": ["-m", "export.serve", "--model", "versions", "--port", "0"],
    "keras_transformer": ["-c", "import keras_transformer"],
    "export_saved_model": ["-c", "from export import export_saved_model; export_saved_model('nowhere', 'nowhere')"],
}


# tensorflow and what it comes upon: an interruption, and what native code makes of one
@pytest.mark.parametrize("accident", ["import os, signal; os.kill(os.getpid(), signal.SIGINT)", "raise SystemError"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_interruption_of_the_imports_is_quiet(tmp_path, command, accident):
    (tmp_path / "tensorflow.py").write_text(accident, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        env=environment(tmp_path, ROOT),
        cwd=tmp_path,
        timeout=60,
    )
    if accident.startswith("raise"):
        assert done.returncode == 1 and b"SystemError" in done.stderr  # the accident does happen
    else:
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


NATIVE = """
import os
from keras_transformer_cli.importing import without_notes
with without_notes():
    os.write(2, b"I0000 00:00:1 a.cc:1] a note\\nE0000 00:00:1 a.cc:2] an error\\n")
    os.write(2, b"the last words")
    {end}
os.write(2, b"I0000 afterwards")
"""


@pytest.mark.parametrize("end, code, afterwards", [("", 0, b"I0000 afterwards"), ("os.abort()", -signal.SIGABRT, b"")])
def test_only_notes_are_left_out_also_where_the_import_crashes(end, code, afterwards):
    done = subprocess.run([sys.executable, "-c", NATIVE.format(end=end)], capture_output=True, cwd=ROOT, timeout=60)
    assert done.returncode == code
    assert done.stderr == b"E0000 00:00:1 a.cc:2] an error\nthe last words" + afterwards


@pytest.mark.skipif(platform.machine() != "x86_64", reason="about x86 processors")
@pytest.mark.parametrize("asked, seen", [(None, "1"), ("0", "0")])
@pytest.mark.parametrize("command", [*COMMANDS.values(), *IMPORTS.values()], ids=[*COMMANDS, *IMPORTS])
def test_onednn_is_asked_for_before_tensorflow_is_imported(tmp_path, command, asked, seen):
    says_what_is_set = "import os; os.write(1, os.environ['TF_ENABLE_ONEDNN_OPTS'].encode()); os._exit(0)"
    (tmp_path / "tensorflow.py").write_text(says_what_is_set, encoding="utf-8")
    version = tmp_path / "versions" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    of_child = environment(tmp_path, ROOT)
    of_child.pop("TF_ENABLE_ONEDNN_OPTS", None)
    of_child |= {"TF_ENABLE_ONEDNN_OPTS": asked} if asked else {}
    done = subprocess.run([sys.executable, *command], capture_output=True, env=of_child, cwd=tmp_path, timeout=60)
    assert done.stdout == seen.encode(), done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="about x86 processors")
@pytest.mark.parametrize("asked, uses", [(None, True), ("1", True), ("0", False)])
def test_tensorflow_multiplies_by_onednn_unless_it_is_told_not_to(asked, uses):
    of_child = environment(ROOT, TF_CPP_MIN_LOG_LEVEL="0")
    of_child.pop("TF_ENABLE_ONEDNN_OPTS", None)
    of_child |= {"TF_ENABLE_ONEDNN_OPTS": asked} if asked else {}
    command = [sys.executable, "-c", "import keras_transformer"]
    done = subprocess.run(command, env=of_child, capture_output=True, timeout=120, check=True)
    assert (b"oneDNN custom operations are on" in done.stderr) is uses


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "keras_transformer", "translate", "--workdir"],
        ["-mkeras_transformer", "translate", "--workdir"],
        ["-m", "export", "--to", "nowhere", "--workdir"],
        ["train_keras.py", "--set", "preset=tiny", "--workdir", "nowhere", "--recipe"],
    ],
    ids=lambda command: command[-2] if command[0] == "-m" else command[0],
)
def test_commands_run_on_tensorflow_whatever_keras_has_for_others(tmp_path, command):
    done = subprocess.run(
        [sys.executable, *command, tmp_path / "missing"], capture_output=True, cwd=ROOT, text=True, timeout=60,
        env=environment(ROOT, KERAS_BACKEND="jax"),
    )  # fmt: skip
    assert done.returncode in (1, 2) and done.stderr.startswith("error: ") and "missing" in done.stderr


def test_the_command_of_another_package_has_its_own_backend(tmp_path):
    package = tmp_path / "theirs"
    package.mkdir()
    (package / "__init__.py").write_text("import os, keras_transformer\nprint(os.environ['KERAS_BACKEND'])")
    (package / "__main__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "theirs", "keras_transformer"], capture_output=True, cwd=tmp_path, text=True, timeout=60,
        env=environment(ROOT, KERAS_BACKEND="torch"),
    )  # fmt: skip  # of which there is none: only what is said matters
    assert done.stdout == "torch\n" or "torch" in done.stderr
