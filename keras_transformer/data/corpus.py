"""The tokenised pairs on disk, memory-mapped: built once, opened in milliseconds whatever its size.

    train/
      source.values, source.offsets     the ids of the sources, uint16 or int32 (data/columns.py)
      target.values, target.offsets
      meta.json                         the key of what it was made of, sizes of files, the summary of the cleaning

A store is written to a folder aside, flushed to the disk and renamed, with meta.json as the last file: it is whole or
it is not there. Sizes are checked when it is opened.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from keras_transformer.data.cleaning import Cleaning
from keras_transformer.data.columns import Column, ColumnWriter
from keras_transformer.data.sources import DataError, Pair
from keras_transformer.files import sync, write_json
from keras_transformer.progress import Progress
from keras_transformer.tokenizer import Tokenizers
from keras_transformer_cli.lines import chunks

FORMAT = 2  # part of the keys: with another number every store is built anew
CHUNK_PAIRS = 8192  # tokenised at a time, so that this much of the text is in memory
CHUNK_CHARACTERS = 4_000_000


class Corpus:
    """A store that is open.

    Args:
        folder: Where `build_corpus` wrote it. DataError if it is not there or not whole.
        tokenizers: Those that it was made with; only `sample` needs them.
    """

    def __init__(self, folder: str | Path, tokenizers: Tokenizers | None = None):
        self.folder = folder = Path(folder)
        self.tokenizers = tokenizers
        try:
            self.meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            damaged = [name for name, size in self.meta["files"].items() if os.stat(folder / name).st_size != size]
            self.key = self.meta["key"]
            columns = {name: np.dtype(dtype) for name, dtype in self.meta["columns"].items()}
        except FileNotFoundError as error:
            raise DataError(f"{folder}: no corpus is stored here ({Path(error.filename).name} is missing).") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{folder}: the stored corpus is damaged: {error!r}.") from error
        if damaged:
            raise DataError(f"{folder}: the stored corpus is damaged: wrong size of {', '.join(damaged)}.")
        self.source, self.target = (Column(folder, name, columns[name]) for name in ("source", "target"))

    def __len__(self):
        return len(self.source)

    @property
    def source_lengths(self) -> np.ndarray:
        """Pieces of every source, end of sentence included. (pairs,) int32"""
        return self.source.lengths

    @property
    def target_lengths(self) -> np.ndarray:
        return self.target.lengths

    def pair(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids of one pair, end of sentence included."""
        return self.source[index], self.target[index]

    def sample(self, rows: Iterable[int], amount: float, seeds: Iterable[int]) -> list[list[list[int]]]:
        """For each side the ids of the given pairs, their text cut at random. Needs the tokenizers."""
        rows = list(rows)
        return [
            tokenizer.sample([column[row].tolist() for row in rows], amount, seed)
            for tokenizer, column, seed in zip(self.tokenizers, (self.source, self.target), seeds, strict=True)
        ]


STORE_FILES = ("meta.json", ".values", ".offsets")


def build_corpus(
    folder: str | Path,
    pairs: Iterable[Pair],
    tokenizers: Tokenizers,
    cleaning: Cleaning,
    *,
    key: str,
    total: int | None = None,
) -> Corpus:
    """Tokenises `pairs` into a store and opens it. The processor cores share the work, a chunk at a time.

    Args:
        cleaning: Judges the tokenised pairs; its summary goes into the store.
        key: Says what the store is made of.
        total: The number of pairs, for the progress bar.
    """
    folder = Path(folder)
    partial = folder.with_name(folder.name + ".partial")
    refuse_other_files(folder)
    refuse_other_files(partial)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    columns = {"source": ids_dtype(tokenizers.source), "target": ids_dtype(tokenizers.target)}
    progress = Progress(f"Tokenising {folder.name}", "pairs", total)
    rows = tokenise(progress.count(pairs), tokenizers, cleaning)
    try:
        files = write_columns(partial, columns, rows)
        summary = cleaning.summary(folder.name)
        if not files["source.values"]:
            raise DataError(f"No pair is left after cleaning. {summary}")
        meta = {"key": key, "columns": columns, "files": files, "report": summary}
        write_json(partial / "meta.json", meta)
        publish(partial, folder)
    except OSError as error:  # no space left, most likely
        raise DataError(f"{folder}: the corpus cannot be stored: {error.strerror}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Corpus(folder, tokenizers)


def refuse_other_files(folder: Path):
    """Refuses a folder that holds anything but a store, since a store may replace only a store."""
    files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if others := [name for name in files if not name.removesuffix(".partial").endswith(STORE_FILES)]:
        raise DataError(
            f"{folder} must be free for the tokenised corpus. It holds {others[0]}, which is not part of one; give "
            "another --workdir."
        )


def tokenise(pairs: Iterable[Pair], tokenizers: Tokenizers, cleaning: Cleaning) -> Iterator[list[tuple]]:
    """The rows of the store, a chunk at a time: the ids of both sides."""
    for chunk in chunks(pairs, CHUNK_PAIRS, CHUNK_CHARACTERS, lambda pair: len(pair[0]) + len(pair[1])):
        sources, targets = zip(*chunk, strict=True)
        rows = zip(tokenizers.source.encode(sources), tokenizers.target.encode(targets), strict=True)
        yield [row for row in rows if cleaning.fits(*row)]


def write_columns(folder: Path, columns: dict[str, str], chunked_rows: Iterable[list[tuple]]) -> dict[str, int]:
    """Writes the rows column by column. -> the names and sizes of the files"""
    with ExitStack() as stack:
        writers = [stack.enter_context(ColumnWriter(folder, name, dtype)) for name, dtype in columns.items()]
        for rows in chunked_rows:
            for writer, sequences in zip(writers, zip(*rows, strict=True), strict=False):  # no rows: no sequences
                writer.append(sequences)
        return {name: size for writer in writers for name, size in writer.finish().items()}


def ids_dtype(tokenizer) -> str:
    return "uint16" if tokenizer.vocab_size <= 2**16 else "int32"


def publish(partial: Path, folder: Path):
    """Puts a finished folder in place of an older one. A kill in between leaves none; it will then be built again."""
    sync(partial)
    if folder.is_symlink():  # what it points at stays
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    os.rename(partial, folder)
    sync(folder.parent)
