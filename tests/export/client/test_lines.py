import json

import pytest

from export.client import lines
from export.client.lines import batches, read_rows


def rows(*given, columns=("text",)):
    return list(read_rows(given, columns))


def test_a_line_is_a_row_and_a_single_column_has_its_tabs():
    assert rows("a", "", "b\tc") == [{"text": "a"}, {"text": ""}, {"text": "b\tc"}]


def test_columns_stand_between_tabs_and_two_of_them_are_numbers():
    least = -(2**63)
    found = rows("a b\t0.5\t7", f"\t1e30\t{least}", columns=["text", "temperature", "seed"])
    assert found == [{"text": "a b", "temperature": 0.5, "seed": 7}, {"text": "", "temperature": 1e30, "seed": least}]


@pytest.mark.parametrize(
    ("line", "columns", "message"),
    [
        ("a", ["source", "target"], "Line 2 must have 2 columns separated by TABs, source, target. Received: 1"),
        ("a\tb\tc", ["source", "target"], "Received: 3"),
        ("a\twarm", ["text", "temperature"], "Line 2: `temperature` must be a finite number. Received: 'warm'"),
        ("a\tnan", ["text", "temperature"], "Line 2: `temperature` must be a finite number. Received: 'nan'"),
        ("a\t0.5", ["text", "seed"], "Line 2: `seed` must be a 64-bit integer. Received: '0.5'"),
        ("a\t" + "1" * 5000, ["text", "seed"], "Line 2: `seed` must be a 64-bit integer. Received: '1{80}'"),
        ("a\t" + "1" * 400, ["text", "seed"], "Line 2: `seed` must be a 64-bit integer. Received: '1{80}'"),
        (f"a\t{2**63}", ["text", "seed"], f"Line 2: `seed` must be a 64-bit integer. Received: '{2**63}'"),
    ],
)
def test_a_line_that_does_not_fit_the_columns_is_named(line, columns, message):
    good = "\t".join("1" for _ in columns)
    with pytest.raises(ValueError, match=message):
        rows(good, line, columns=columns)


@pytest.mark.parametrize(
    ("text", "sent"), [("a" * 9, "a" * 8), ("ä" * 5, "ä" * 4), ("aää€€", "aää€"), ("€€€", "€€"), ("👩👩👩", "👩👩")]
)
def test_a_long_text_is_cut_between_two_characters_and_that_is_said_once_a_line(monkeypatch, capsys, text, sent):
    monkeypatch.setattr(lines, "MAX_TEXT", 8)
    assert rows("a" * 8, f"{text}\t{text}", columns=["text"])[1]["text"].startswith(sent)
    capsys.readouterr()
    assert rows("a\tb", f"{text}\t{text}", columns=["a", "b"]) == [{"a": "a", "b": "b"}, {"a": sent, "b": sent}]
    assert capsys.readouterr().err == "Line 2: a text exceeds 8 bytes; the rest of it is not sent.\n"


def test_no_text_that_a_server_would_read_is_cut(capsys):
    from export.module import MAX_INPUT_BYTES

    assert MAX_INPUT_BYTES <= lines.MAX_TEXT
    assert rows("👩" * (lines.MAX_TEXT // 4)) == [{"text": "👩" * (lines.MAX_TEXT // 4)}]
    assert capsys.readouterr().err == ""


def test_a_request_has_as_many_rows_as_fit_into_its_bytes():
    given = [{"text": text} for text in ("a", "b", "c", "\x00" * lines.MAX_TEXT, "\x00" * lines.MAX_TEXT, "d", "e" * 9)]
    found = list(batches(iter(given * 3), 3))
    assert [row for batch in found for row in batch] == given * 3
    assert all(len(batch) <= 3 for batch in found)
    bytes_ = [len(json.dumps(batch).encode()) for batch in found if len(batch) > 1]
    assert max(bytes_) < 1.1 * lines.MAX_REQUEST
    assert [len(batch) for batch in batches(iter(given[:3] * 3), 4)] == [4, 4, 1]


def test_the_longest_lines_fit_into_what_the_server_takes():
    from export.serve import RequestLimits

    (batch, *_) = batches(({"text": "\x00" * lines.MAX_TEXT} for _ in range(32)), 32)
    assert len(json.dumps(batch).encode()) < RequestLimits().max_body_bytes / 3


def test_the_rows_before_a_bad_line_come_first():
    found = batches(read_rows(["a\t1", "b\t2", "c\tx"], ("text", "seed")), 32)
    assert next(found) == [{"text": "a", "seed": 1}, {"text": "b", "seed": 2}]
    with pytest.raises(ValueError, match="Line 3"):
        next(found)
