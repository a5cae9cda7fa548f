"""A model of several checkpoints."""

import numpy as np
import pytest

from keras_transformer import Transformer
from keras_transformer.__main__ import main
from keras_transformer.training.checkpoints import Checkpoints, read_arrays
from keras_transformer.translator import Translator


def test_the_weights_are_the_mean_and_the_folder_can_be_used(finished_run, tmp_path, capsys):
    paths = Checkpoints(finished_run / "checkpoints", keep=1).regular()
    assert main(["average", "--workdir", str(finished_run), "--to", str(tmp_path / "average")]) == 0
    assert paths[0].name in capsys.readouterr().out
    translator = Translator.load(tmp_path / "average")
    checkpoints = [read_arrays(path).arrays for path in paths]
    for variable in translator.model.trainable_variables:
        mean = np.mean([arrays[f"model/{variable.path}"] for arrays in checkpoints], axis=0, dtype=np.float64)
        np.testing.assert_allclose(variable.numpy(), mean, atol=1e-7)
    assert len(translator.translate(["Anna sleeps."])) == 1


def test_a_checkpoint_can_be_named(finished_run, tmp_path):
    last = Checkpoints(finished_run / "checkpoints", keep=1).regular()[-1]
    for name, arguments in {"a": ["--last", "1"], "b": ["--checkpoints", str(last)]}.items():
        assert main(["average", "--workdir", str(finished_run), "--to", str(tmp_path / name), *arguments]) == 0
    weights = [Translator.load(tmp_path / name).model.get_weights() for name in "ab"]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--last", "99"], 1, "Expected 99 checkpoints"),
        (["--checkpoints", "/nowhere.npz"], 1, "There is no /nowhere.npz."),
        (["--last", "1", "--checkpoints", "x"], 2, "both"),
        (["--checkpoints", __file__], 1, "Nothing is averaged. "),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_written(finished_run, tmp_path, arguments, code, message, capsys):
    target = tmp_path / "average"
    assert main(["average", "--workdir", str(finished_run), "--to", str(target), *arguments]) == code
    assert message in capsys.readouterr().err
    assert not target.exists()


def test_checkpoints_of_a_run_with_other_pieces_are_refused(finished_run, tmp_path, capsys):
    last = Checkpoints(finished_run / "checkpoints", keep=1).regular()[-1]
    (tmp_path / "other" / "checkpoints").mkdir(parents=True)
    foreign = tmp_path / "other" / "checkpoints" / last.name
    foreign.write_bytes(last.read_bytes())
    arguments = ["average", "--workdir", str(finished_run), "--checkpoints", str(last), str(foreign), "--to"]
    assert main([*arguments, str(tmp_path / "a")]) == 0  # a copy of a checkpoint alone
    assert f"average of {last.name}, {foreign}" in capsys.readouterr().out
    (tmp_path / "other" / "tokenizer.model").write_bytes(b"other pieces")
    assert main([*arguments, str(tmp_path / "b")]) == 1
    assert f"Expected checkpoints of runs with the tokenizer of {finished_run}" in capsys.readouterr().err


def test_after_an_error_it_can_be_repeated(finished_run, tmp_path, monkeypatch, capsys):
    def run_out(self, path):
        raise OSError(28, "No space left on device")

    arguments = ["average", "--workdir", str(finished_run), "--to", str(tmp_path / "average")]
    with monkeypatch.context() as patch:
        patch.setattr(Transformer, "save", run_out)
        assert main(arguments) == 1 and "No space left" in capsys.readouterr().err
    assert main(arguments) == 0
    names = {path.name for path in (tmp_path / "average").iterdir()}
    assert names == {"config.json", "model.json", "model.keras", "tokenizer.model"}


def test_a_folder_that_holds_something_is_left_alone(finished_run, capsys):
    assert main(["average", "--workdir", str(finished_run), "--to", str(finished_run)]) == 1
    assert "new or empty folder" in capsys.readouterr().err
