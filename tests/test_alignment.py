"""Pieces to words, attention to links."""

import numpy as np
import pytest

from keras_transformer.alignment import NO_WORD, links, word_numbers
from keras_transformer.data.demo import demo_pairs
from keras_transformer.data.demo_lexicon import NOUNS
from keras_transformer.tokenizer import Tokenizer
from keras_transformer.translator import Translator
from tests.integration.runs import ROOT

CASES = {
    "pieces of words": (["▁Tom", "▁sle", "eps", ".", "</s>"], [0, 1, 1, 1, -1]),
    "no end of sentence": (["▁Tom", "▁sle"], [0, 1]),
    "nothing": ([], []),
    "an empty sentence": (["</s>"], [-1]),
    "an unknown word": (["▁", "<unk>", "▁a", "</s>"], [0, 0, 1, -1]),
    "bytes": (["▁a", "▁", "<0xE6>", "<0x97>", "<0xA5>", "b", "</s>"], [0, 1, 1, 1, 1, 1, -1]),
    "blanks of a search, which no text has": (["▁", "▁", "▁a", "▁", "▁", "</s>"], [0, 0, 0, -1, -1, -1]),
    "a tokenizer without a blank at the beginning": (["To", "m", "▁sleeps"], [0, 0, 1]),
}


@pytest.mark.parametrize(("pieces", "expected"), CASES.values(), ids=CASES)
def test_a_piece_belongs_to_the_word_that_it_is_written_in(pieces, expected):
    assert word_numbers(pieces) == expected


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_words_are_those_between_blanks(byte_fallback, lowercase):
    text = ["the cat sees a dog", "Der Hund schläft."] * 9
    tokenizer = Tokenizer.train(text, vocab_size=300, byte_fallback=byte_fallback, lowercase=lowercase)
    for text, expected in [
        ("the dog", 2),
        ("  the\tdog \n", 2),
        ("日本 a日 \U0001f600", 3),
        ("the\u00a0dog a\u3000cat", 4),
        ("ﬁ ½ … don't-know", 4),
        ("a▁▁b ▁ c", 3),  # which SentencePiece takes for blanks
        ("", 0),
        (" \u200b ", 0),
    ]:
        numbers = word_numbers(tokenizer.pieces(tokenizer.encode([text])[0]))
        assert sorted({*numbers} - {NO_WORD}) == list(range(expected)), text
        assert numbers[-1] == NO_WORD and numbers[:-1] == sorted(numbers[:-1])


def test_a_link_needs_half_of_the_best_agreement_of_both_words():
    weights = np.array([[0.9, 0.1, 0.0], [0.1, 0.5, 0.4], [0.1, 0.5, 0.4]])
    assert links(weights, [0, 1, 2], [0, 1, 2]) == [(0, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    weights = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    assert links(weights, [0, 1, 2], [0, 1, 2]) == [(0, 0), (1, 1), (2, 2)]


def test_half_of_the_best_agreement_is_enough_and_less_for_either_word_is_not():
    assert links([[0.0, 0.5], [0.5, 0.5]], [0, 1], [0, 1]) == [(0, 1), (1, 0), (1, 1)]  # 0.25, and 0.5 is the best
    uneven = np.array([[0.0, 1.0], [0.4, 0.6]])  # the agreement of the last words: 0.225, the best of theirs 0.625, 0.4
    assert links(uneven, [0, 1], [0, 1]) == links(uneven.T, [0, 1], [0, 1]) == [(0, 1), (1, 0)]


def test_links_are_sorted_by_source_then_target():
    swapped = np.array([[0.1, 0.9], [0.9, 0.1]])
    assert links(swapped, [0, 1], [0, 1]) == [(0, 1), (1, 0)]


def test_pieces_of_a_word_count_as_their_mean():
    weights = np.array([[0.1, 0.1, 0.8], [0.5, 0.5, 0.0], [0.3, 0.7, 0.0]])
    assert links(weights, [0, 0, 1], [0, 1, 1]) == [(0, 1), (1, 0)]
    weights = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # by sums the second word would be linked with both
    assert links(weights, [0, 1], [0, 1, 1]) == [(0, 0), (1, 1)]
    weights = np.array([[0.2, 0.7, 0.1], [0.4, 0.2, 0.4]])  # here, too
    assert links(weights, [0, 1, 1], [0, 1]) == [(0, 1), (1, 0)]


def test_a_source_word_that_everybody_looks_at_is_linked_with_those_that_look_at_little_else():
    weights = np.array([[0.4, 0.6], [0.01, 0.99], [0.01, 0.99]])
    assert links(weights, [0, 1], [0, 1, 2]) == [(0, 0), (1, 1), (1, 2)]


def test_what_belongs_to_no_word_has_no_link_and_no_weight():
    weights = np.array([[0.3, 0.1, 0.6], [0.1, 0.3, 0.6], [0.9, 0.1, 0.0]])
    assert links(weights, [0, 1, NO_WORD], [0, 1, NO_WORD]) == [(0, 0), (1, 1)]


def test_without_words_or_without_attention_there_are_no_links():
    assert links(np.ones((2, 1)), [NO_WORD], [0, NO_WORD]) == []
    assert links(np.ones((1, 2)), [0, NO_WORD], [NO_WORD]) == []
    assert links(np.zeros((2, 2)), [0, 1], [0, 1]) == []
    assert links(np.full((2, 2), np.nan), [0, 1], [0, 1]) == []  # of a model that has diverged


def test_renaming_words_on_either_side_renames_the_links(rng):
    weights = rng.dirichlet(np.ones(7), 5)
    found, order = links(weights, range(7), range(5)), rng.permutation(7)
    assert sorted((order[i], j) for i, j in links(weights[:, order], range(7), range(5))) == found
    order = rng.permutation(5)
    assert sorted((i, order[j]) for i, j in links(weights[order], range(7), range(5))) == found


def test_nouns_are_linked_with_their_translations_by_a_trained_model():
    """The lexicon of the demo grammar is the oracle; the model has learned from other text."""
    sources, targets = zip(*demo_pairs("test", 100), strict=True)
    found = Translator.load(ROOT / "examples" / "tatoeba_en_de" / "model").word_alignments(sources, targets)
    expected = hit = linked = 0
    for source, target, its_links in zip(sources, targets, found, strict=True):
        for link in noun_links(source, target):
            expected, hit = expected + 1, hit + (link in its_links)
            linked += sum(target_word == link[1] for _, target_word in its_links)
    assert expected > 100 and hit / expected > 0.95 and hit / linked > 0.93


def noun_links(source, target):
    """The pairs of words that are the same noun, where it stands once on either side."""
    sides = [[word.strip(".,?").lower() for word in text.split()] for text in (source, target)]
    for noun in NOUNS:
        forms = {noun.english, noun.english_plural} - {""}, {*noun.singular, *noun.plural} - {""}
        places = [
            [place for place, word in enumerate(side) if word in {form.lower() for form in own}]
            for side, own in zip(sides, forms, strict=True)
        ]
        if list(map(len, places)) == [1, 1]:
            yield places[0][0], places[1][0]
