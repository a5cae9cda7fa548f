"""Settings that cannot be right are refused."""

import pytest

from keras_transformer.decoding import BeamSettings, SearchSettings

IDS = dict(pad_id=0, bos_id=2, eos_id=3)


@pytest.mark.parametrize("alpha", [-0.1, float("nan")])
def test_a_length_penalty_that_rewards_nothing_is_refused(alpha):
    with pytest.raises(ValueError, match="`alpha` must be at least 0"):
        SearchSettings(**IDS, alpha=alpha)


def test_a_negative_ngram_is_refused():
    with pytest.raises(ValueError, match="no_repeat_ngram"):
        SearchSettings(**IDS, alpha=0.6, no_repeat_ngram=-1)


@pytest.mark.parametrize("number", [0, 4])
def test_more_hypotheses_than_beams_are_refused(number):
    with pytest.raises(ValueError, match=f"num_hypotheses={number}, beam_width=3"):
        BeamSettings(**IDS, alpha=0.6, beam_width=3, num_hypotheses=number)
