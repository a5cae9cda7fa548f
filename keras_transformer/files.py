"""Atomic writing: a file is written aside, flushed to the disk and renamed, so it is whole or not there. And gzip."""

import contextlib
import errno
import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

FILLING = ".partial"  # a folder inside of one that is being filled
NO_FOLDERS = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)  # from file systems that do not flush names: CIFS, FUSE, 9p
DAMAGED_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)  # raised where a compressed file is read


def is_gzip(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".gz"


def open_binary(path: str | Path, mode: str = "rb"):
    """Opens a binary file; it is compressed by gzip if its name ends with .gz."""
    return gzip.open(path, mode) if is_gzip(path) else open(path, mode)


@contextlib.contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """The path of a file to write, which becomes `path` when the block ends. An error inside leaves `path` as it was.

    >>> with replacing(path) as aside:
    ...     aside.write_bytes(content)
    """
    aside = aside or path.with_name(path.name + ".partial")
    try:
        yield aside
        sync(aside)
        os.replace(aside, path)
        sync(path.parent)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno and error.filename is None:  # of a write: it says not where
            error.filename = str(path)
        aside.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def filling(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A folder to write to, whose files replace those of `folder` when the block ends. An error inside changes no file.

    `names` are all the files that belong together; those that are not written are removed. The last one makes them
    valid: the old one is deleted first and the new one moved in last. So after a kill there are the old files, the new
    ones, or none of that last name.
    """
    aside, last = folder / FILLING, names[-1]
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for path in aside.iterdir():  # whoever has written them
            sync(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    (folder / last).unlink(missing_ok=True)
    sync(folder)
    for name in names:
        if (aside / name).exists():
            os.replace(aside / name, folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    sync(folder)
    shutil.rmtree(aside, ignore_errors=True)


def may_be_filled(folder: Path, names: Sequence[str]) -> bool:
    """Whether a folder is new, empty, or holds nothing but what a killed process was filling it with."""
    if not folder.is_dir():
        return not folder.exists()
    found = {path.name for path in folder.iterdir()}
    return not found or (FILLING in found and found <= {FILLING, *names[:-1]})


def write_text(path: Path, text: str):
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value):
    write_text(path, json.dumps(value, indent=1) + "\n")  # in ASCII: the name of a file may be invalid Unicode


def save_model(model, path: Path):
    """Writes a Keras model as a .keras file."""
    with replacing(path, path.with_suffix(".partial.keras")) as aside:  # Keras wants this end of a name
        model.save(aside)


def read_json(path: Path) -> dict:
    """The object in a JSON file; an empty one where there is no such file, or something else in it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def sync(path: Path):
    """Flushes a file or the names of a folder to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in NO_FOLDERS:
            raise
    finally:
        os.close(descriptor)
