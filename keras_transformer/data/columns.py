"""Sequences of different lengths in two memory-mapped files, and their writing.

NAME.values     all sequences, one after the other                  [21 340 7 3 | 9 3 | ...]
NAME.offsets    where each begins; the last is the end of all       [0 4 6 ...]                int64
"""

import os
from itertools import chain
from pathlib import Path

import numpy as np

from keras_transformer.tokenizer import PAD_ID

OFFSET = np.dtype(np.int64)


class Column:
    """Sequences of different lengths in two memory-mapped files."""

    def __init__(self, folder: Path, name: str, dtype):
        types = {"values": dtype, "offsets": OFFSET}
        maps = (np.memmap(folder / f"{name}.{part}", dtype, mode="r") for part, dtype in types.items())
        self.values, self.offsets = map(np.asarray, maps)  # plain arrays are quicker to index

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets).astype(np.int32)

    def padded(self, rows: np.ndarray, width: int) -> np.ndarray:
        """The given sequences as one array filled up with padding. (R,) -> (R, width) int32"""
        begins, ends = self.offsets[rows], self.offsets[rows + 1]
        positions = begins[:, None] + np.arange(width)  # (R, width)
        inside = positions < ends[:, None]
        return np.where(inside, self.values[np.where(inside, positions, 0)], PAD_ID).astype(np.int32)


class ColumnWriter:
    """Appends to the two files of a `Column`. Use as a context."""

    def __init__(self, folder: Path, name: str, dtype: str):
        self.dtype, self._end = dtype, 0
        self._files = [open(folder / f"{name}.{part}", "wb") for part in ("values", "offsets")]  # noqa: SIM115
        self._values, self._offsets = self._files
        self._offsets.write(OFFSET.type(0).tobytes())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self._files:
            file.close()

    def append(self, sequences: tuple):
        ends = self._end + np.cumsum([len(sequence) for sequence in sequences], dtype=OFFSET)
        size = int(ends[-1]) - self._end
        self._values.write(np.fromiter(chain.from_iterable(sequences), self.dtype, size).tobytes())
        self._offsets.write(ends.tobytes())
        self._end = int(ends[-1])

    def finish(self) -> dict[str, int]:
        """Flushes to the disk. -> the names and sizes of the files"""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        return {Path(file.name).name: file.tell() for file in self._files}
