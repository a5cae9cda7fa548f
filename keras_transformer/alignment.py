"""Which word of a translation comes from which word of its source, by the attention of the model.

    pieces           ["▁Tom", "▁sle", "eps", ".", "</s>"]
    word_numbers     [   0,      1,     1,    1,    -1  ]           the words of "Tom sleeps.", split at blanks
    links            [(0, 0), (1, 1)]                               with "Tom schläft.": (source word, target word)

The weights are those with which the steps that write a target word attend to the source. Nobody taught them to align
words, so links are an approximation; docs/log.md, 2026-11-29, says how good it is, and why it is made in this way.
"""

from collections.abc import Sequence

import numpy as np

BLANK, END = "▁", "</s>"  # how SentencePiece writes them
NO_WORD = -1
SHARE = 0.5  # of the greatest agreement that its two words have: what a link needs


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The number of the word that each piece belongs to; `NO_WORD` for the end of sentence, and for blanks behind all.

    "▁" begins a word. Alone it belongs to the word behind it, whose characters are bytes or no pieces: "▁", "<unk>".
    """
    numbers, number, is_inside = [], -1, False
    for piece in pieces:
        is_inside = is_inside and not piece.startswith(BLANK)
        if not is_inside and piece.strip(BLANK) and piece != END:
            number, is_inside = number + 1, True
        numbers.append(number if is_inside else number + 1)
    return [NO_WORD if piece == END or i > number else i for piece, i in zip(pieces, numbers, strict=True)]


def links(weights, source_words: Sequence[int], target_words: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs (source word, target word) that belong together, sorted. A word may be in several, or in none.

    The agreement of two words is the share that the source word has of the target word's attention, times the share
    that the target word has of all attention to the source word. A link needs half of the best of both.

    Args:
        weights: (T, S), row t is the step that writes piece t.
        source_words: S numbers, as `word_numbers` gives them.
        target_words: T numbers.
    """
    by_target_word = _means(np.asarray(weights, np.float64), target_words)  # (target words, S)
    attention = _means(by_target_word.T, source_words)  # (source words, target words)
    agreement = _shares(attention, axis=0) * _shares(attention, axis=1)
    needed = SHARE * np.maximum(*(agreement.max(axis, keepdims=True, initial=0) for axis in (0, 1)))
    return [(i, j) for i, j in np.argwhere((agreement >= needed) & (agreement > 0)).tolist()]


def _means(rows, words):
    """The mean of the rows of every word. (N, M), N numbers -> (words, M)"""
    words = np.asarray(words, np.int64)
    is_of_word = words == np.arange(words.max(initial=NO_WORD) + 1)[:, None]  # (words, N)
    return is_of_word @ rows / is_of_word.sum(1, keepdims=True)


def _shares(x, axis):
    """`x` divided by its sums; 0 where such a sum is."""
    return x / np.maximum(x.sum(axis, keepdims=True), np.finfo(x.dtype).tiny)
