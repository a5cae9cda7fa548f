"""Pairs in, a line for each out; `test_score.py` and `test_align.py` have what the two commands make of it."""

import argparse

import pytest

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
    pairs = read_pairs(parsed("--input", tmp_path / "odd"))
    assert next(pairs) == ("a", "b")
    with pytest.raises(ValueError, match="Line 2 must be SOURCE TAB TARGET. Received: 2 tabs"):
        next(pairs)
