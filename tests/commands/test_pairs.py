"""Pairs in, a line for each out; `test_score.py` and `test_align.py` have what the two commands make of it."""

import argparse

import pytest

from keras_transformer.commands import pairs
from keras_transformer.commands.pairs import add_pairs, read_pairs
from keras_transformer.config import ConfigError


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_pairs(parser, "answers", "answered")
    return parser.parse_args([*map(str, arguments)])


def test_two_files_and_one_of_pairs_hold_the_same(tmp_path):
    for name, text in {"a": "x y\n\n", "b": "z\nw\n", "both": "x y\tz\n\tw\n"}.items():
        (tmp_path / name).write_text(text)
    expected = [("x y", "z"), ("", "w")]
    assert list(read_pairs(parsed("--input", tmp_path / "both"))) == expected
    assert list(read_pairs(parsed("--source", tmp_path / "a", "--target", tmp_path / "b"))) == expected


@pytest.mark.parametrize(
    "given", [["--source"], ["--target"], ["--source", "--target", "--input"], ["--source", "--input"]]
)
def test_another_combination_of_files_is_wrong_usage(given):
    with pytest.raises(ConfigError, match="Expected --source and --target, or --input alone"):
        read_pairs(parsed(*(word for option in given for word in (option, "a"))))


def test_a_line_is_one_pair(tmp_path):
    (tmp_path / "odd").write_text("a\tb\na\tb\tc\n")
    rows = read_pairs(parsed("--input", tmp_path / "odd"))
    assert next(rows) == ("a", "b")
    with pytest.raises(ValueError, match="Line 2 must be SOURCE TAB TARGET. Received: 2 tabs"):
        next(rows)


@pytest.mark.parametrize("run", ["first", "second"])
def test_what_belongs_to_a_run_or_a_further_one_is_not_written_over(tmp_path, monkeypatch, run):
    monkeypatch.setattr(pairs, "load_translator", lambda options: None)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "both").write_text("a\tb\n")
    named = "--workdir", tmp_path / "first", "--ensemble", tmp_path / "second"
    options = parsed(*named, "--input", tmp_path / "both", "--output", tmp_path / run / "config.json")
    with pytest.raises(ValueError, match="must not be a file that is read"):
        pairs.answer_pairs(options, lambda translator, *sides: sides[0])
    assert (tmp_path / run / "config.json").read_text() == "{}"
