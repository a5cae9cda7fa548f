"""The console command."""

import keras
import pytest
import tensorflow as tf

from keras_transformer import __version__
from keras_transformer.__main__ import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "--workdir" in capsys.readouterr().out


def test_the_versions_that_a_report_of_a_bug_needs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    expected = f"keras-transformer {__version__} (TensorFlow {tf.__version__}, Keras {keras.__version__})\n"
    assert (ended.value.code, capsys.readouterr().out) == (0, expected)


def test_no_command_is_an_error(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2


def test_an_unknown_option_shows_those_of_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--foo", "bar"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--nbest" in said and said.endswith("translate: error: unrecognized arguments: --foo bar\n")


def test_the_exit_code_of_a_command_is_handed_on(tmp_path, capsys):
    assert main(["train", "--workdir", str(tmp_path), "--set", "model.d_model=-1"]) == 2
    assert "d_model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "no room for [8,9]"), "no room for [8,9]"),
        (MemoryError(), "MemoryError"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_what_runs_out_is_one_line(tmp_path, monkeypatch, capsys, error, said):
    def run_out(options):
        raise error

    monkeypatch.setattr(COMMANDS["average"][0], "run", run_out)
    assert main(["average", "--to", str(tmp_path)]) == 1
    assert said in capsys.readouterr().err
