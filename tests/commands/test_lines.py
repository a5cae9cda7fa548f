"""Lines in, lines out."""

import gzip
import io
import os
import queue
import sys
import threading
from types import SimpleNamespace

import pytest

from keras_transformer.commands import lines
from keras_transformer.commands.lines import chunks, count_lines, open_output, read_lines


def test_the_lines_of_a_file_are_read_and_counted(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\nb\xff\n\x00\xe2\x80\xa8c\n")
    assert list(read_lines(str(path))) == ["a", "", "b\ufffd", "\x00\u2028c"]
    assert count_lines(path) == 4


def test_standard_input_is_read_without_a_path(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(b"a\nb"))))
    assert list(read_lines(None)) == ["a", "b"]
    assert count_lines(None) is None


def test_the_rest_of_an_endless_line_is_left_out_and_the_next_line_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lines.lines, "MAX_LINE", 7)
    path = tmp_path / "in.txt"
    path.write_bytes(b"a" * 50 + b"\n" + b"b" * 6 + b"\nc\n" + b"d" * 9)
    assert list(read_lines(path)) == ["a" * 7, "b" * 6, "c", "d" * 7]
    assert capsys.readouterr().err.count("more than 7 bytes") == 2


def test_a_file_in_utf16_is_read_with_a_warning(tmp_path, capsys):
    path = tmp_path / "in.txt"
    for text in ("Anna\nsleeps\n", "日本\n"):
        path.write_text(text, encoding="utf-16")
        assert len(list(read_lines(path))) > 1
        assert f"Expected UTF-8. {path} looks like UTF-16" in capsys.readouterr().err
    path.write_bytes("ÄÖ \0 x\n".encode("latin-1"))
    assert list(read_lines(path)) == ["\ufffd\ufffd \0 x"] and not capsys.readouterr().err


def test_chunks_are_limited_in_rows_and_in_characters(monkeypatch):
    monkeypatch.setattr(lines, "MAX_CHUNK", 10)
    rows = [("ab",)] * 7 + [("x" * 50,)] * 2
    assert [len(chunk) for chunk in chunks(rows, 3)] == [3, 3, 1, 1, 1]
    assert [row for chunk in chunks(rows, 3) for row in chunk] == rows
    assert list(chunks([], 3)) == []


def test_what_is_written_is_one_line_each(tmp_path):
    path = tmp_path / "out.txt"
    with open_output(path, None) as write:
        write(["a\nb", "", "\ud800 ä"])
    assert path.read_bytes() == "a b\n\n? ä\n".encode()


def test_standard_output_is_no_file_that_is_read(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_text("a\n")
    for read in (path, None):
        with open(path) as stdin, open(path, "a") as stdout, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stdin)
            patch.setattr(sys, "stdout", stdout)
            with pytest.raises(ValueError, match="Received: standard output for both"), open_output(None, read):
                pass
    with open(tmp_path / "other", "w") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        with open_output(None, path) as write:
            write(["b"])
    assert (path.read_text(), (tmp_path / "other").read_text()) == ("a\n", "b\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_an_output_that_is_full_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), open_output("/dev/full") as write:
        write(["a"])


def test_a_file_is_not_written_while_it_is_read(tmp_path):
    path = tmp_path / "text"
    path.write_text("precious\n")
    with pytest.raises(ValueError, match="a file that is read"), open_output(str(path), str(tmp_path / "." / "text")):
        pass
    assert path.read_text() == "precious\n"


def test_standard_input_is_not_overwritten_either(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_text("precious\n")
    with open(path) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(ValueError, match="a file that is read"), open_output(str(path), None):
            pass
        assert path.read_text() == "precious\n"
        with open_output(str(tmp_path / "other"), None):
            pass


def test_pipes_with_a_name_are_opened_once(tmp_path):
    """Who writes to one that is closed again gets an error, and who reads from one the end of what comes."""
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        os.mkfifo(path)

    def copy():
        with open_output(target, source) as write:
            write(f"{line}!" for line in read_lines(source))

    results = [in_background(run) for run in (lambda: source.write_text("a\nb\n"), copy, target.read_text)]
    assert [result.get(timeout=60) for result in results] == [4, None, "a!\nb!\n"]


def in_background(function):
    """A queue that gets what the function returns. Nobody waits for one that hangs."""
    result = queue.Queue()
    threading.Thread(target=lambda: result.put(function()), daemon=True).start()
    return result


def test_an_output_is_left_as_it_is_where_the_input_cannot_be_read(tmp_path):
    path = tmp_path / "text"
    path.write_text("precious\n")
    with pytest.raises(FileNotFoundError), open_output(str(path), str(tmp_path / "nowhere")):
        pass
    assert path.read_text() == "precious\n"


@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_a_closed_stream_is_said(name, monkeypatch):
    monkeypatch.setattr(sys, name, None)
    with pytest.raises(ValueError, match=f"{name} must be open"):
        list(read_lines(None)) if name == "stdin" else open_output(None).__enter__()


def test_a_compressed_file_is_decompressed(tmp_path):
    path = tmp_path / "in.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfa\n" * 2 + b"b"))
    assert list(read_lines(path)) == ["a", "\ufeffa", "b"]
    assert count_lines(path) is None


def test_an_output_with_such_a_name_is_compressed(tmp_path):
    with open_output(tmp_path / "out.gz") as write:
        write(["ä", "b"])
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == "ä\nb\n".encode()


@pytest.mark.parametrize("damage", [lambda x: x[:-20], lambda x: b"text" + x, lambda x: x[:40] + b"\0" * 9 + x[49:]])
def test_a_compressed_file_that_is_damaged_is_said_to_be_so(tmp_path, damage):
    path = tmp_path / "in.txt.gz"
    path.write_bytes(damage(gzip.compress(b"".join(b"%d\n" % i for i in range(999)))))
    with pytest.raises(ValueError, match="in.txt.gz: the gzip file is damaged after line"):
        list(read_lines(path))


def test_a_file_of_any_size_is_counted(tmp_path):
    (tmp_path / "in.txt").write_bytes(b"a line\n" * 200_000)
    assert count_lines(tmp_path / "in.txt") == 200_000


def test_a_file_that_is_to_be_kept_is_not_written_over(tmp_path):
    (tmp_path / "text").write_text("precious\n")
    with (
        pytest.raises(ValueError, match="a file that is read"),
        open_output(tmp_path / "text", kept=[tmp_path / "text"]),
    ):
        pass
    assert (tmp_path / "text").read_text() == "precious\n"
