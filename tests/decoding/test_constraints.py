import numpy as np
import tensorflow as tf

from keras_transformer.decoding import Constraints, SearchSettings
from keras_transformer.decoding.constraints import NUM_FORBIDDEN, forbidden, forced, within, without_repeats
from tests.decoding.worlds import BOS, EOS, PAD, SPECIAL, repeats_newly

V = 11


def settings(n=0):
    return SearchSettings(**SPECIAL, alpha=0.0, no_repeat_ngram=n)


def test_an_ngram_is_forbidden_where_it_would_be_complete_a_second_time():
    history = tf.constant([[5, 6, 7, 8, 5, 6, 0, 0]])
    logits = without_repeats(tf.zeros((1, V)), history, 6, settings(3))
    assert np.flatnonzero(np.isneginf(logits)).tolist() == [PAD, 7]


def test_what_may_not_be_repeated_is_what_a_comparison_of_all_ngrams_finds(rng):
    for n in (1, 2, 3, 4):
        for index in range(9):
            history = rng.integers(3, 6, (7, 9)).astype("int32")
            history[:, index:] = PAD
            logits = without_repeats(tf.zeros((7, V)), tf.constant(history), tf.constant(index), settings(n))
            for row in range(7):
                ids = tuple(history[row, :index].tolist())
                expected = [token for token in range(3, V) if repeats_newly((*ids, token), n)]
                assert np.flatnonzero(np.isneginf(logits[row])).tolist() in (expected, [PAD, *expected])


def test_pad_and_bos_are_always_forbidden_and_eos_before_the_minimum():
    constraints = Constraints(tf.constant([9, 9]), min_lengths=tf.constant([0, 4]))
    ids = tf.range(V)[None, None, :]
    never = [forbidden(ids, index, constraints, settings()).numpy() for index in (2, 3)]
    assert np.flatnonzero(never[0][0, 0]).tolist() == [PAD, BOS]
    assert np.flatnonzero(never[0][1, 0]).tolist() == sorted([PAD, BOS, EOS])
    assert np.flatnonzero(never[1][1, 0]).tolist() == [PAD, BOS]
    assert np.max(np.sum(never, axis=-1)) == NUM_FORBIDDEN


def test_a_prefix_is_forced_as_far_as_it_reaches():
    given = Constraints([5, 99, -1], None, np.array([[4, 5], [6, 0], [0, 0]]), [2, 1, 7])
    constraints = within(given, 7)
    assert constraints.max_lengths.numpy().tolist() == [5, 7, 0]
    for index, (ids, reaches) in enumerate([([4, 6, 0], [1, 1, 1]), ([5, 0, 0], [1, 0, 1]), ([0] * 3, [0] * 3)]):
        found_ids, found_reaches = forced(constraints, index)
        assert found_reaches.numpy().tolist() == [bool(x) for x in reaches]
        assert found_ids.numpy().tolist() == ids
