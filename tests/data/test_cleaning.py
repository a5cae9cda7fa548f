import pytest

from keras_transformer.config import DataConfig
from keras_transformer.data.cleaning import Cleaning
from keras_transformer.tokenizer import EOS_ID, UNK_ID

KEPT = [("a b", "c d"), ("naïve", "naïf")]


def clean(pairs, **options):
    cleaning = Cleaning(DataConfig(**options))
    return list(cleaning.clean(pairs)), dict(cleaning.dropped)


@pytest.mark.parametrize(
    "options, dropped, reason",
    [
        ({}, ("", "c"), "empty side"),
        ({}, ("a", " \t\u00a0"), "empty side"),
        ({}, ("a\0b", "c"), "NUL character"),
        ({}, ("a", "b\0c"), "NUL character"),
        ({"drop_identical": True}, ("Paris", "Paris"), "identical sides"),
        ({"max_length_ratio": 2.0}, ("a", "abc"), "lengths beyond a ratio of 2"),
        ({"max_length_ratio": 1.5}, ("abcd", "ab"), "lengths beyond a ratio of 1.5"),
        ({"drop_duplicates": True}, ("a b", "c d"), "duplicate"),
    ],
)
def test_a_pair_goes_for_its_reason_and_the_others_stay(options, dropped, reason):
    assert clean([*KEPT, dropped], **options) == (KEPT, {reason: 1})


def test_options_that_are_off_drop_nothing():
    pairs = [("a", "a" * 50), ("a", "a"), ("a", "a")]
    assert clean(pairs) == (pairs, {})


def test_a_pair_at_the_limit_stays():
    assert clean([("ab", "abcd")], max_length_ratio=2.0) == ([("ab", "abcd")], {})


def test_duplicates_are_equal_on_both_sides():
    pairs = [("a", "b"), ("a", "c"), ("b", "a"), ("b c", "d"), ("b ", "cd"), ("b", " cd"), ("ab", ""), ("a", "b")]
    kept, dropped = clean(pairs, drop_duplicates=True)
    assert kept == pairs[:6]
    assert dropped == {"empty side": 1, "duplicate": 1}


@pytest.mark.parametrize("lowercase", [False, True])
def test_case_counts_unless_the_tokenizer_folds_it(lowercase):
    pairs = [("Ein Haus", "A house"), ("ein Haus", "a house"), ("Paris", "paris"), ("STRASSE", "straße")]
    kept, dropped = clean(pairs, drop_duplicates=True, drop_identical=True, lowercase=lowercase)
    assert kept == (pairs[:1] if lowercase else pairs)
    assert dropped == ({"duplicate": 1, "identical sides": 2} if lowercase else {})


def test_the_length_counts_in_pieces_with_the_end_of_sentence():
    cleaning = Cleaning(DataConfig(max_length=4))
    assert cleaning.fits([5, 6, 7, 3], [5, 3])
    assert not cleaning.fits([5, 6, 7, 8, 3], [5, 3])
    assert not cleaning.fits([5, 3], [5, 6, 7, 8, 3])
    assert not cleaning.fits([3], [5, 3])
    assert dict(cleaning.dropped) == {"longer than 4 pieces": 2, "empty side": 1}


def test_the_summary_says_what_went_and_why():
    cleaning = Cleaning(DataConfig(drop_duplicates=True))
    list(cleaning.clean([("a", "b")] * 1203 + [("c", ""), ("d", "e")]))
    cleaning.hold_out()
    assert cleaning.summary("train").split("\n") == [
        "train: 1,205 pairs read, 1 kept",
        "     1,202  duplicate",
        "         1  empty side",
        "         1  held out for validation",
    ]


def test_unknown_pieces_are_counted_where_there_are_some():
    cleaning = Cleaning(DataConfig(max_length=9))
    assert cleaning.fits([5, 6, EOS_ID], [7, EOS_ID]) and "unknown" not in cleaning.summary("train")
    assert cleaning.fits([UNK_ID, 6, EOS_ID], [UNK_ID, 7, UNK_ID, EOS_ID])
    assert not cleaning.fits([UNK_ID] * 10, [5, EOS_ID])
    assert "         3  of 12 pieces are unknown to the tokenizer" in cleaning.summary("train").split("\n")
