import io
import itertools

import pytest

from keras_transformer_cli import lines
from keras_transformer_cli.lines import chunks, read_lines


def read(data):
    return list(read_lines(io.BytesIO(data)))


@pytest.mark.parametrize(
    "text, expected",
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xff\n", ["\ufffd"]),
        (b"a\xc3\nb\xc3", ["a\ufffd", "b\ufffd"]),
        (b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\r\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", [""]),
        (b"a\rb\x0bc\x0cd\x1ee\xc2\x85f\xe2\x80\xa8g\n", ["a\rb\x0bc\x0cd\x1ee\x85f\u2028g"]),
        (b"\x00\n", ["\x00"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\r", ["a"]),
    ],
)
def test_lines_end_with_newlines_alone(text, expected):
    assert read(text) == expected


def test_of_an_endless_line_no_more_is_read_than_the_limit(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 4)
    assert read(b"abcdefghij\nabc\nabcd\nabcde\n") == ["abcd", "abc", "abcd", "abcd"]
    assert read(b"abcd") == ["abcd"] and read(b"abcdefghi") == ["abcd"]


def test_chunks_are_limited_in_rows_and_in_size():
    rows = ["ab"] * 7 + ["x" * 50] * 2 + ["a"]
    found = list(chunks(rows, 3, 10, len))
    assert [len(chunk) for chunk in found] == [3, 3, 1, 1, 1, 1]
    assert list(itertools.chain(*found)) == rows
    assert list(chunks([], 3, 10, len)) == []


def test_a_full_chunk_does_not_wait_for_the_next_row():
    def rows():
        yield "a"
        raise AssertionError("asked for more")

    assert next(chunks(rows(), 1, 10, len)) == ["a"]


def test_an_error_comes_after_the_rows_before_it():
    def rows():
        yield from "abc"
        raise ValueError("line 4")

    found = chunks(rows(), 2, 10, len)
    assert [next(found), next(found)] == [["a", "b"], ["c"]]
    with pytest.raises(ValueError, match="line 4"):
        next(found)
