"""Lines of a file, whatever it holds, and what is made of them a few at a time: all in bounded memory.

A line ends with \\n or \\r\\n and nothing else, a byte order mark may stand before the first, bytes that are not UTF-8
become U+FFFD, and the last line needs no end.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

MAX_LINE = 2**24  # bytes of a line that are read

Row = TypeVar("Row")


def read_lines(file, too_long: Callable[[], None] = lambda: None) -> Iterator[str]:
    """The lines of a binary file, without their ends. `too_long` is called where the rest of a line is left out."""
    mark = codecs.BOM_UTF8
    while line := file.readline(MAX_LINE):
        if not line.endswith(b"\n") and len(line) == MAX_LINE:
            too_long()
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
        yield line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")
        mark = b""


def chunks(rows: Iterable[Row], num_rows: int, most: int, size_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """The rows some at a time: at most `num_rows`, and fewer where their sizes would add up to more than `most`.

    If `rows` raises an error, the rows before it are yielded first.
    """
    chunk, size, failure = [], 0, None
    try:
        for row in rows:
            row_size = size_of(row)
            if chunk and size + row_size > most:
                yield chunk
                chunk, size = [], 0
            chunk.append(row)
            size += row_size
            if len(chunk) == num_rows:  # at once: somebody may wait for the answer before the next row comes
                yield chunk
                chunk, size = [], 0
    except Exception as error:
        failure = error
    if chunk:
        yield chunk
    if failure:
        raise failure
