"""Checkpoints: one file each, complete or absent.

    checkpoints/step-00000400.npz       regular: by steps or minutes, the newest so many are kept and averaged
    checkpoints/best.npz                the best validation so far, by BLEU or by perplexity
    checkpoints/interrupted.npz         where a signal or `train.patience` stopped the run; no average has it

A run goes on from the newest of them. A file holds every variable of the run by name (weights, optimizer, moving
average, dropout seeds) and the state of the callbacks as JSON. It is written aside, flushed to the disk and then
renamed, so that a process killed while writing leaves the earlier ones as they were. The archive carries a checksum
of every array, and the number of arrays: a truncated or damaged file does not load.
"""

import errno
import io
import json
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_transformer.files import replacing
from keras_transformer.training.variables import named_variables, shapes

STATE = "state.json"  # the key of the callbacks' state
# Raised by reading a file that is no checkpoint or is not whole; RuntimeError comes from a flipped flag of a zip file.
DAMAGED = (OSError, ValueError, KeyError, EOFError, RuntimeError, struct.error, zlib.error, zipfile.BadZipFile)


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written or used."""

    exit_code = 1  # of a command that it ends


class DamagedError(ValueError):
    """A file that is no checkpoint, or is not whole."""


class Restored(NamedTuple):
    path: Path
    arrays: dict[str, np.ndarray]
    state: dict


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they lie.
        keep: how many regular ones stay.
    """

    def __init__(self, folder, keep=1):
        self.folder, self.keep = Path(folder), keep
        self.best_path, self.interrupted_path = self.folder / "best.npz", self.folder / "interrupted.npz"

    def regular(self):
        """The regular checkpoints, oldest first."""
        return sorted(path for path in self.folder.glob("step-*.npz") if re.fullmatch(r"step-\d{8}\.npz", path.name))

    def all(self):
        """Every checkpoint, in no order."""
        return self.regular() + [path for path in (self.interrupted_path, self.best_path) if path.exists()]

    def regular_path(self, step):
        return self.folder / f"step-{step:08d}.npz"

    def has(self, step) -> bool:
        """Whether the regular checkpoint of a step is there and whole."""
        path = self.regular_path(step)
        return path.exists() and bool(whole([path], say=lambda _: None))  # which `restore` has reported

    def save(self, trainee, state, path=None):
        """Writes the run as it stands to `path`; without one, to the regular checkpoint of `state["step"]`."""
        arrays = {name: variable.numpy() for name, variable in named_variables(trainee).items()}
        write_arrays(path or self.regular_path(state["step"]), arrays, state)
        if path is None:
            self.interrupted_path.unlink(missing_ok=True)
            for old in self.regular()[: -self.keep]:
                old.unlink()

    def restore(self, trainee, say=print):
        """Loads the newest whole checkpoint into the variables. Returns its state, or None if there are no checkpoints.

        Raises an error if one cannot be read, because it may be whole, or if all that there are are damaged.
        """
        for leftover in self.folder.glob("*.partial"):  # of a process that was killed while writing
            leftover.unlink(missing_ok=True)
        # The best one is the newest where a run was killed before the next regular one.
        paths = sorted(self.all(), key=_step, reverse=True)
        for path in paths:
            try:
                restored = _read(path)
            except DamagedError as error:
                say(f"{path} is damaged ({error}); trying another one.")
                continue
            _assign(named_variables(trainee), restored)
            return restored.state
        if paths:
            raise CheckpointError(
                f"At least one checkpoint of {self.folder} must be whole. All {len(paths)} are damaged; remove the "
                "folder to begin anew."
            )
        return None

    def forget_after(self, step):
        """Removes the regular checkpoints of steps after `step`, which the run will write again."""
        for path in self.regular():
            if _step(path) > step:
                path.unlink()


def write_arrays(path, arrays, state):
    """Writes `path` so that it is either whole or as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = json.dumps({"state": state, "num_arrays": len(arrays)})
    try:
        with replacing(path) as aside, open(aside, "wb") as file:  # an open file: to a path NumPy would append .npz
            np.savez(file, **arrays, **{STATE: np.frombuffer(record.encode(), np.uint8)})
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise CheckpointError(
            f"Cannot write the checkpoint {path}: {error.strerror}. The checkpoints before it are intact; "
            f"{'make room and ' if is_full else ''}run the same command again."
        ) from error


def read_arrays(path):
    """Everything in a checkpoint, checksums compared."""
    with zipfile.ZipFile(path) as archive:
        record = _record(archive)
        arrays = {name: _array(archive, name) for name in _names(archive) if name != STATE}
    if len(arrays) != record["num_arrays"]:
        raise ValueError(f"{len(arrays)} arrays of {record['num_arrays']}")
    return Restored(Path(path), arrays, record["state"])


def _read(path):
    """`read_arrays`, which tells a damaged file from one that cannot be read now and may be whole."""
    try:
        return read_arrays(path)
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a wrong offset
            raise CheckpointError(f"Cannot read the checkpoint {path}: {error.strerror}.") from error
        raise DamagedError(str(error)) from error


def _record(archive):
    return json.loads(_array(archive, STATE).tobytes())


def _step(path):
    """The step after which a checkpoint was written; infinity for one that does not tell, so that it is tried first."""
    if path.stem.startswith("step-"):
        return int(path.stem.removeprefix("step-"))
    try:
        with zipfile.ZipFile(path) as archive:
            return _record(archive)["state"]["step"]
    except DAMAGED:
        return math.inf


def _names(archive):
    return [entry.removesuffix(".npy") for entry in archive.namelist()]


def _array(archive, name):
    """One array. The entry is read to its end before it is understood: only there its checksum is compared."""
    return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


def whole(paths, say=print):
    """The paths whose checkpoints load; the damaged ones are reported."""
    found = []
    for path in paths:
        try:
            _read(path)
            found.append(path)
        except DamagedError as error:
            say(f"{path} is damaged ({error}) and left out.")
    return found


def average_weights(paths, group="model"):
    """The mean of the weights of several checkpoints, as {variable path: array}, summed in float64."""
    total = {}
    for path in paths:
        weights = _weights(path, group)
        if total and shapes(weights) != shapes(total):
            raise CheckpointError(f"Only checkpoints of one model can be averaged. Received: {paths[0]} and {path}.")
        for name, array in weights.items():
            if name in total:
                total[name] += array  # in place: a large model leaves no room for another set
            else:
                total[name] = array.astype(np.float64)
    return {name: (value / len(paths)).astype(np.float32) for name, value in total.items()}


def _weights(path, group):
    with zipfile.ZipFile(path) as archive:
        names = [name for name in _names(archive) if name.startswith(f"{group}/")]
        arrays = {name.removeprefix(f"{group}/"): _array(archive, name) for name in names}
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def _assign(variables, restored):
    missing = variables.keys() - restored.arrays.keys()
    unknown = restored.arrays.keys() - variables.keys()
    if missing or unknown:
        raise CheckpointError(
            f"{restored.path} does not hold the variables of this run. "
            f"Missing: {sorted(missing)[:5]}. Unknown: {sorted(unknown)[:5]}."
        )
    for name, variable in variables.items():
        variable.assign(restored.arrays[name])
