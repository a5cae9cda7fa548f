"""The lines that the command reads, as rows of inputs, a few at a time.

    --columns text                     the dog sees      -> {"text": "the dog sees"}
    --columns text,temperature,seed    the dog\\t0.7\\t3   -> {"text": "the dog", "temperature": 0.7, "seed": 3}

A text longer than any server reads is cut, with a note on standard error.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence

from keras_transformer_cli.lines import chunks

MAX_TEXT = 2**16  # bytes of a text that are sent; a server reads the first `max_input_bytes`, a few thousand
MAX_REQUEST = 2**20  # bytes of JSON in a request that has several rows; export.serve takes 4 MiB
NUMBERS = {"temperature": float, "seed": int}  # inputs of the signature `sample`; all others are text

Row = dict[str, str | float | int]


def read_rows(lines: Iterable[str], columns: Sequence[str]) -> Iterator[Row]:
    """The rows of lines, with a value for each column, between TABs. A single column is the line, TABs and all."""
    for number, line in enumerate(lines, start=1):
        values = line.split("\t") if len(columns) > 1 else [line]
        if len(values) != len(columns):
            expected = f"{len(columns)} columns separated by TABs, {', '.join(columns)}"
            raise ValueError(f"Line {number} must have {expected}. Received: {len(values)}.")
        cut = [_cut(value) for value in values]
        if cut != values and sys.stderr is not None:
            print(f"Line {number}: a text exceeds {MAX_TEXT:,} bytes; the rest of it is not sent.", file=sys.stderr)
        yield {name: _value(name, value, number) for name, value in zip(columns, cut, strict=True)}


def _cut(text):
    if len(text) <= MAX_TEXT // 4:  # a character has four bytes at most
        return text
    return text.encode()[:MAX_TEXT].decode(errors="ignore")  # without the character that was cut in two


def _value(name, value, number):
    if name not in NUMBERS:
        return value
    try:
        found = NUMBERS[name](value)
    except ValueError:
        found = math.nan
    is_integer = NUMBERS[name] is int
    if not (-(2**63) <= found < 2**63 if is_integer else math.isfinite(found)):
        kind = "a 64-bit integer" if is_integer else "a finite number"
        raise ValueError(f"Line {number}: `{name}` must be {kind}. Received: {value[:80]!r}.")
    return found


def batches(rows: Iterable[Row], num_rows: int) -> Iterator[list[Row]]:
    """The rows of a request each: at most `num_rows`, and fewer where it would be longer than `MAX_REQUEST`."""
    return chunks(rows, num_rows, MAX_REQUEST, lambda row: len(json.dumps(row, ensure_ascii=False).encode()))
