"""Checkpoints: whole or absent, everything in them, the newest that is whole wins."""

import errno
import os

import numpy as np
import pytest

from keras_transformer import TrainConfig, Transformer
from keras_transformer.training import checkpoints as module
from keras_transformer.training.checkpoints import (
    CheckpointError,
    Checkpoints,
    average_weights,
    read_arrays,
    whole,
    write_arrays,
)
from keras_transformer.training.step import Trainee
from keras_transformer.training.variables import set_weights
from tests.training.batches import random_batches
from tests.training.trainees import fit, make_trainee, values


@pytest.fixture
def trainee():
    return make_trainee()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_restored_run_goes_on_as_if_it_had_never_stopped(optimizer, tmp_path):
    trainee = make_trainee(optimizer=optimizer)
    batches = random_batches(5)
    checkpoints = Checkpoints(tmp_path, keep=3)
    fit(trainee, batches[:2])
    checkpoints.save(trainee, {"step": 2, "note": [1.5, None]})
    fit(trainee, batches[2:])
    resumed = make_trainee(seed=99, optimizer=optimizer)
    assert checkpoints.restore(resumed) == {"step": 2, "note": [1.5, None]}
    fit(resumed, batches[2:])
    expected = values(trainee)
    for name, value in values(resumed).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_without_a_checkpoint_nothing_is_restored(trainee, tmp_path):
    assert Checkpoints(tmp_path / "none", keep=3).restore(trainee) is None


def test_the_newest_regular_ones_are_kept(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(trainee, {"step": 1}, checkpoints.best_path)
    for step in (10, 20, 30, 40):
        checkpoints.save(trainee, {"step": step})
    assert [path.name for path in checkpoints.regular()] == ["step-00000030.npz", "step-00000040.npz"]
    assert checkpoints.best_path.exists()


def test_an_interrupted_one_is_resumed_but_takes_no_part_in_the_average(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(trainee, {"step": 10})
    checkpoints.save(trainee, {"step": 13}, checkpoints.interrupted_path)
    assert checkpoints.restore(trainee)["step"] == 13
    assert len(checkpoints.regular()) == 1
    checkpoints.save(trainee, {"step": 20})
    assert not checkpoints.interrupted_path.exists()


def test_the_best_one_is_resumed_where_it_is_the_newest_that_is_whole(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(trainee, {"step": 5}, checkpoints.best_path)
    assert checkpoints.restore(trainee)["step"] == 5
    checkpoints.save(trainee, {"step": 10})
    assert checkpoints.restore(trainee)["step"] == 10
    checkpoints.save(trainee, {"step": 15}, checkpoints.best_path)
    assert checkpoints.restore(trainee)["step"] == 15
    checkpoints.save(trainee, {"step": 17}, checkpoints.interrupted_path)
    assert checkpoints.restore(trainee)["step"] == 17
    checkpoints.interrupted_path.write_bytes(b"half")
    assert checkpoints.restore(trainee, lambda said: None)["step"] == 15


def test_an_old_damaged_one_is_in_nobodys_way(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "step-00000010.npz").write_bytes(b"half")
    checkpoints.save(trainee, {"step": 5}, checkpoints.best_path)
    write_arrays(tmp_path / "step-00000020.npz", read_arrays(checkpoints.best_path).arrays, {"step": 20})
    said = []
    assert checkpoints.restore(trainee, said.append)["step"] == 20 and not said


def test_a_damaged_one_is_not_there(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert not checkpoints.has(20)
    checkpoints.save(trainee, {"step": 20})
    assert checkpoints.has(20)
    checkpoints.regular_path(20).write_bytes(checkpoints.regular_path(20).read_bytes()[:1000])
    assert not checkpoints.has(20)


def test_no_turned_bit_is_read_as_another_value(tmp_path):
    """A checksum is compared at the end of an entry only, and a turned header may end the array before it."""
    arrays, path = {"a": np.arange(6, dtype=np.float32), "b": np.ones((2, 3), np.float32)}, tmp_path / "x.npz"
    write_arrays(path, arrays, {"step": 3})
    data = path.read_bytes()
    for place in range(len(data)):
        for bit in (1, 2, 16):
            path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
            try:
                found = read_arrays(path)
            except module.DAMAGED:
                continue
            assert found.state == {"step": 3} and found.arrays.keys() == arrays.keys(), place
            for name, array in found.arrays.items():
                np.testing.assert_array_equal(array, arrays[name], err_msg=str(place))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text", "encrypted", "method", "lost"])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(trainee, tmp_path, damage):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(trainee, {"step": 10})
    expected = values(trainee)
    fit(trainee, random_batches(1))
    path = tmp_path / "step-00000020.npz"
    checkpoints.save(trainee, {"step": 20})
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[data.index(b"NUMPY") + 200] ^= 0xFF  # in the first array, behind its header
    directory = data.index(b"PK\1\2")  # of the archive, at its end
    if damage == "encrypted":
        data[directory + 8] |= 1
    if damage == "method":
        data[directory + 10] = 99
    if damage == "lost":
        with np.load(path) as archive:
            np.savez(path, **{name: archive[name] for name in archive.files[1:]})
        data = path.read_bytes()
    path.write_bytes({"truncated": data[: len(data) // 2], "empty": b"", "text": b"hello"}.get(damage, data))
    said = []
    assert checkpoints.restore(trainee, said.append)["step"] == 10
    assert "step-00000020.npz" in said[0]
    for name, value in values(trainee).items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize("moment", ["write", "fsync", "rename"])
def test_no_space_left_is_a_clear_error_and_the_last_good_checkpoint_stays(trainee, tmp_path, monkeypatch, moment):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(trainee, {"step": 10})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = {"write": (np, "savez"), "fsync": (os, "fsync"), "rename": (os, "replace")}[moment]
    monkeypatch.setattr(*where, full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        checkpoints.save(trainee, {"step": 20})
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010.npz"]
    assert checkpoints.restore(trainee)["step"] == 10


def test_a_checkpoint_of_another_model_is_refused(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(trainee, {"step": 10})
    other = Trainee(
        Transformer(
            53, d_model=16, d_ff=31, num_heads=2, num_encoder_layers=2, num_decoder_layers=1, name="transformer"
        ),
        TrainConfig(xla=False),
    )
    with pytest.raises(CheckpointError, match="encoder_1"):
        checkpoints.restore(other)


def test_a_damaged_interrupted_checkpoint_is_named_too(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(trainee, {"step": 10})
    checkpoints.interrupted_path.write_bytes(b"half")
    said = []
    assert checkpoints.restore(trainee, said.append)["step"] == 10
    assert "interrupted.npz" in said[0]
    assert whole([checkpoints.interrupted_path, *checkpoints.regular()], said.append) == checkpoints.regular()


def test_the_average_is_the_mean_of_the_weights(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    seen = []
    for step in (1, 2, 3):
        fit(trainee, random_batches(1, seed=step))
        checkpoints.save(trainee, {"step": step})
        seen.append([v.numpy() for v in trainee.transformer.trainable_variables])
    averaged = average_weights(checkpoints.regular())
    set_weights(trainee.transformer, averaged)
    for variable, *three in zip(trainee.transformer.trainable_variables, *seen, strict=True):
        np.testing.assert_allclose(variable.numpy(), np.mean(three, axis=0), rtol=1e-6, atol=1e-7)


def test_checkpoints_of_different_models_are_not_averaged(tmp_path):
    weights = {"model/a": np.ones((2, 3), np.float32), "model/b": np.ones(4, np.float32)}
    others = [{**weights, "model/c": np.ones(1, np.float32)}, {"model/a": weights["model/a"]}]
    others.append({**weights, "model/b": np.ones(5, np.float32)})
    write_arrays(tmp_path / "first.npz", weights, {})
    for other in others:
        write_arrays(tmp_path / "second.npz", other, {})
        with pytest.raises(
            CheckpointError, match="of one model can be averaged. Received: .*first.npz and .*second.npz"
        ):
            average_weights([tmp_path / "first.npz", tmp_path / "second.npz"])


def test_a_killed_write_leaves_no_file_that_would_be_read(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = checkpoints.folder / "step-00000010.npz"
    checkpoints.save(trainee, {"step": 10})
    (tmp_path / "step-00000020.npz.partial").write_bytes(path.read_bytes()[:100])  # what a kill in the middle leaves
    assert checkpoints.restore(trainee)["step"] == 10
    assert read_arrays(path).state == {"step": 10}


def test_a_checkpoint_that_cannot_be_read_now_is_an_error_and_not_damage(trainee, tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(trainee, {"step": 10})
    checkpoints.save(trainee, {"step": 20})

    def unreadable(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(module, "read_arrays", unreadable)
    with pytest.raises(CheckpointError, match=r"step-00000020.npz: Input/output error"):
        checkpoints.restore(trainee)
    assert len(checkpoints.regular()) == 2


def test_one_that_cannot_be_read_now_is_not_taken_for_damaged(trainee, tmp_path):
    path = tmp_path / "step-00000010.npz"
    Checkpoints(tmp_path).save(trainee, {"step": 10})
    path.unlink()  # by a run that goes on, after its names were listed
    with pytest.raises(CheckpointError, match=f"Cannot read the checkpoint {path}: No such file"):
        whole([path])


def test_where_all_are_damaged_nothing_begins_anew(trainee, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (10, 20):
        (tmp_path / f"step-{step:08d}.npz").write_bytes(b"half")
    with pytest.raises(CheckpointError, match="All 2 are damaged"):
        checkpoints.restore(trainee, lambda said: None)
    assert len(checkpoints.regular()) == 2
