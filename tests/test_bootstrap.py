"""Resampling: the counts add up to sacreBLEU's own figures, the intervals to its own draws."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from keras_transformer.bootstrap import count, middle

HYPOTHESES = ["the cat sat on the mat", "a dog", "he reads the old book", "yes"] * 5
REFERENCES = ["the cat sat on a mat", "the dog", "he reads an old book", "no"] * 5


@pytest.mark.parametrize("metric", [BLEU, CHRF, TER])
def test_the_counts_of_all_sentences_give_the_score_of_the_corpus(metric):
    expected = metric().corpus_score(HYPOTHESES, [REFERENCES]).score
    assert count(metric(), HYPOTHESES, REFERENCES).value() == pytest.approx(expected)


def test_the_same_seed_draws_the_same_sentences_and_another_one_others():
    counts = count(BLEU(), HYPOTHESES, REFERENCES)
    first, again, other = (counts.resample(20, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_middle_leaves_out_two_and_a_half_percent_on_each_side():
    low, high = middle(np.arange(1001.0))
    assert low == pytest.approx(25, abs=1) and high == pytest.approx(975, abs=1)


def test_without_resamples_there_is_no_interval():
    assert count(BLEU(), HYPOTHESES, REFERENCES).interval(0, 1) is None
