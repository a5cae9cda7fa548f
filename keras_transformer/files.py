"""Atomic writing: a file is written aside, flushed to the disk and renamed, so it is whole or not there. And gzip."""

import contextlib
import errno
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

NO_FOLDERS = (errno.EINVAL, errno.EBADF, errno.ENOTSUP)  # from file systems that do not flush names: CIFS, FUSE, 9p
PARTIAL_MODEL = ".partial.keras"  # Keras wants this end of a name
DAMAGED_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)  # raised where a packed file is read


def open_packed(path: str | Path, mode: str = "rb"):
    """Opens a binary file; it is packed by gzip if its name ends with .gz."""
    return gzip.open(path, mode) if Path(path).suffix == ".gz" else open(path, mode)


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


def write_text(path: Path, text: str):
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value):
    write_text(path, json.dumps(value, indent=1) + "\n")  # in ASCII: the name of a file may be invalid Unicode


@contextlib.contextmanager
def saving_model(model, path: Path) -> Iterator[None]:
    """Writes a Keras model as a .keras file, which becomes `path` when the block ends."""
    with replacing(path, path.with_suffix(PARTIAL_MODEL)) as aside:
        model.save(aside)
        yield


def save_model(model, path: Path):
    """Writes a Keras model as a .keras file."""
    with saving_model(model, path):
        pass


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
