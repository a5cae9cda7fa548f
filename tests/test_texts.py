"""What a translator is given becomes ids, whatever it is; or it is refused."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.compilation import padded_shape
from keras_transformer.texts import batches_by_length, encode, listed, one_a_text
from keras_transformer.tokenizer import EOS_ID, Tokenizer

TEXTS = ["the dog sleeps", "the dog sees a dog", "a dog"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 9, vocab_size=30)


def test_texts_come_in_whatever_can_be_listed():
    assert listed(text for text in TEXTS) == listed(tuple(TEXTS)) == TEXTS
    assert listed([]) == []
    assert listed([["▁a"], "b", ()], or_pieces=True) == [["▁a"], "b", ()]


@pytest.mark.parametrize(
    "texts", ["a", b"a", b"", [b"a"], ["a", None], tf.constant("a"), tf.constant(["a"]), 3, [["▁a"]]]
)
def test_what_is_no_list_of_strings_is_refused(texts):
    with pytest.raises(TypeError, match="Expected strings in a list"):
        listed(texts)


@pytest.mark.parametrize("texts", [[[1]], [["a", 1]], [b"a"], [None], ["a", {"b"}]])
def test_pieces_are_lists_of_strings(texts):
    with pytest.raises(TypeError, match="Expected strings in a list"):
        listed(texts, or_pieces=True)


def test_a_text_at_the_limit_is_read_to_its_end_and_a_longer_one_is_cut_aloud(tokenizer, caplog):
    whole = tokenizer.encode(TEXTS)
    limit = len(whole[0])
    assert len(whole[1]) > limit > len(whole[2])
    with caplog.at_level(logging.WARNING):
        found = encode(tokenizer, TEXTS, limit=limit, limited_by="the limit")
    assert found == [whole[0], [*whole[1][: limit - 1], EOS_ID], whole[2]]
    [record] = caplog.records
    assert record.getMessage() == f"Read {limit} of {len(whole[1])} pieces (the limit) of: {TEXTS[1]!r}"


def test_pieces_keep_their_cuts(tokenizer):
    ids = tokenizer.encode(TEXTS[:1])[0]
    letters = ["▁", *"the"]
    assert encode(tokenizer, [tokenizer.pieces(ids), letters], limit=99, limited_by="the limit")[0] == ids
    assert encode(tokenizer, [letters], limit=99, limited_by="the limit")[0] == tokenizer.ids(letters)
    for wrong in (["<s>"], ["<pad>"], ["</s>", "▁"]):
        with pytest.raises(ValueError, match="Expected the pieces of a translation"):
            encode(tokenizer, [wrong], limit=99, limited_by="the limit")


def test_one_value_is_that_of_all_texts():
    assert one_a_text("seeds", np.array(3), TEXTS).tolist() == [3, 3, 3]
    assert one_a_text("seeds", np.array([3, 5, 7]), TEXTS).tolist() == [3, 5, 7]
    with pytest.raises(ValueError, match="`seeds` must be one for all texts or one a text, 3. Received: array"):
        one_a_text("seeds", np.array([3]), TEXTS)


def test_batches_hold_every_row_once_within_their_budget():
    lengths = np.random.default_rng(5).integers(1, 97, 211)
    batches = list(batches_by_length(lengths, 512))
    assert sorted(np.concatenate(batches)) == list(range(211))
    for rows in batches:
        _, width = padded_shape(1, lengths[rows].max())
        assert len(rows) == 1 or len(rows) * width <= 512 < 2 * len(rows) * width or rows is batches[-1]
    assert {len(rows) for rows in batches[:-1]} <= {2**n for n in range(10)}
