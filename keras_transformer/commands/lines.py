"""Lines in, lines out: what the commands read and write, whatever it holds, in bounded memory. (`evaluate` reads UTF-8
alone, by data/sources.py.)

What a line is: keras_transformer_cli/lines.py. Of one that is too long the rest is left out, with a note. A file whose
name ends with .gz is compressed.
"""

import codecs
import contextlib
import errno
import itertools
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_transformer.files import DAMAGED_GZIP, is_gzip, open_binary
from keras_transformer.screen import warn
from keras_transformer_cli import lines

BUFFER_LINES = 4096  # sorted by length and computed together
MAX_CHUNK = 2**25  # characters of the lines that are handed on together


def read_lines(path) -> Iterator[str]:
    """The lines of a file, or of standard input where `path` is None."""
    number = 0
    try:
        with open_input(path) as file:
            if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                warn(f"Expected UTF-8. {path or 'Standard input'} looks like UTF-16, so its lines make no sense.")
            for line in lines.read_lines(file, _warn):
                number += 1
                yield line
    except DAMAGED_GZIP as error:
        raise ValueError(f"{path}: the gzip file is damaged after line {number}: {error}.") from error


def _warn():
    warn(f"A line has more than {lines.MAX_LINE:,} bytes; the rest of it is not read.")


def read_line_pairs(**paths) -> Iterator[tuple[str, str]]:
    """The lines of two files side by side; the names of both options say whose files they are."""
    (first, second), names = paths.values(), " and ".join(f"--{name}" for name in paths)
    for number, pair in enumerate(itertools.zip_longest(read_lines(first), read_lines(second))):
        if None in pair:
            shorter = (first, second)[pair.index(None)] or "standard input"
            raise ValueError(f"{names} must have the same number of lines. Received: {shorter} ends after {number}.")
        yield pair


def chunks(rows: Iterable[tuple[str, ...]], num_rows: int) -> Iterator[list[tuple[str, ...]]]:
    """The rows, tuples of strings, some at a time: at most `num_rows`, and fewer where they are long."""
    return lines.chunks(rows, num_rows, MAX_CHUNK, lambda row: sum(map(len, row)))


def open_input(path):
    if path is None:
        return contextlib.nullcontext(_standard("stdin"))
    return open_binary(path)


def _standard(name):
    stream = getattr(sys, name)
    if stream is None:
        raise ValueError(f"Without a file, {name} must be open. Received: a closed one.")
    return stream.buffer


@contextlib.contextmanager
def open_output(path, *inputs, kept=()):
    """A function that writes lines to a file, or to standard output where `path` is None, and does not keep them.

    Args:
        path: of the output.
        *inputs: paths of what is read meanwhile; None for standard input. The output may not be one of them.
        kept: paths of other files that the output may not be.
    """
    for other in inputs:
        if other is not None and not Path(other).is_fifo():  # a pipe can be read only once
            open_input(other).close()  # an input that cannot be read should not cost what is in `path`
    if path is None:
        _check_other(None, (*inputs, *kept))
        opened = contextlib.nullcontext(_standard("stdout"))
    else:
        check_output(path, *inputs, *kept)
        opened = open_binary(path, "wb")
    with naming_full_disk(path or "standard output"), opened as file:

        def write(lines: Iterable[str]):
            for line in lines:
                file.write(" ".join(line.split("\n")).encode("utf-8", errors="replace") + b"\n")
            file.flush()

        yield write


@contextlib.contextmanager
def naming_full_disk(path):
    """Adds the path to an error that says that there is no more room."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            error.filename = error.filename or str(path)
        raise


def check_output(path, *inputs):
    """Raises an error if `path` could not be written, or is one of the inputs. Changes nothing."""
    if Path(path).is_fifo():  # its reader would take the end of this try for the end of the output
        return
    existed = Path(path).exists()
    if existed:
        _check_other(path, inputs)
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise ValueError(f"Expected an output that can be written. Received: {path}: {error.strerror}.") from error
    if not existed:
        Path(path).resolve().unlink()  # of a link, what it points to


def _check_other(path, inputs):
    """Raises an error if the output is one of the inputs; None stands for standard output, or standard input."""
    if any(_is_same_file(path, other) for other in inputs):
        raise ValueError(f"The output must not be a file that is read. Received: {path or 'standard output'} for both.")


def _is_same_file(path, other):
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it is not there, closed, or no file
        written, read = _status(path, sys.stdout), _status(other, sys.stdin)
        return stat.S_ISREG(read.st_mode) and os.path.samestat(written, read)
    return False


def _status(path, stream):
    return os.fstat(stream.fileno()) if path is None else os.stat(path)


def count_lines(path) -> int | None:
    """How many lines a file has; None where only reading would tell (standard input, a pipe, .gz)."""
    if path is None or not Path(path).is_file() or is_gzip(path):
        return None
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


def at_terminal() -> bool:
    """Whether a person types the input, and waits for the answer to every line."""
    return sys.stdin is not None and sys.stdin.isatty()
