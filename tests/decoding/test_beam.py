import functools
import string

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Transformer
from keras_transformer.decoding import BeamSettings, Constraints, beam_search, length_penalty
from tests.decoding.worlds import (
    BOS,
    DEMANDS,
    EOS,
    PAD,
    SPECIAL,
    Demand,
    World,
    assert_same,
    brute_force,
    choose_along,
    numpy,
    penalty,
    plain_beam_search,
    read,
    repeats,
    search,
)

ALPHAS = (0.0, 0.6, 1.0, 2.0)
XLA = functools.partial(tf.function, jit_compile=True)
SMALL_WORLD = World(5, seed=3)  # two words beside pad, bos and eos: 2^5 sequences of length 5
WORLD = World(13, seed=5)

# One batch, so that every sentence is searched beside others that want something else.
SMALL_DEMANDS = [
    Demand(0, 5),
    Demand(1, 5, min_length=3),
    Demand(2, 2),
    Demand(3, 5, prefix=(4, 3)),
    Demand(4, 4, min_length=4, prefix=(3,)),
    Demand(5, 1),
    Demand(6, 0),
    Demand(7, 2, prefix=(4, 4, 3)),  # the prefix does not fit
    Demand(8, 5, prefix=(4, EOS, 3)),  # the prefix ends by itself
    Demand(9, 3, min_length=4),  # cannot end
]

# --- against searches that are obviously right


@pytest.mark.parametrize("no_repeat_ngram", [0, 1, 2])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_as_wide_as_the_world_finds_all_that_brute_force_finds(alpha, no_repeat_ngram):
    rules = dict(alpha=alpha, no_repeat_ngram=no_repeat_ngram)
    found = search(SMALL_WORLD, SMALL_DEMANDS, beam_width=32, num_hypotheses=32, **rules)
    for row, demand in enumerate(SMALL_DEMANDS):
        assert_same(read(found, row), brute_force(SMALL_WORLD, demand, **rules))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_width", [1, 2, 3, 5])
def test_a_narrow_beam_finds_what_a_search_with_lists_finds(beam_width, alpha):
    for no_repeat_ngram in (0, 2):
        rules = dict(beam_width=beam_width, alpha=alpha, no_repeat_ngram=no_repeat_ngram)
        found = search(WORLD, DEMANDS, num_hypotheses=beam_width, **rules)
        for row, demand in enumerate(DEMANDS):
            assert_same(read(found, row), plain_beam_search(WORLD, demand, **rules)[:beam_width])


@pytest.mark.parametrize("seed", range(12))
def test_a_narrow_beam_in_other_worlds(seed):
    world, rules = World(7 + seed, seed=seed, scale=0.5 + seed / 4), dict(beam_width=2 + seed % 3, alpha=0.6)
    demands = [Demand(sentence, 11) for sentence in range(5)]
    found = search(world, demands, num_hypotheses=2, **rules)
    for row, demand in enumerate(demands):
        assert_same(read(found, row), plain_beam_search(world, demand, **rules)[:2])


# --- against greedy search


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("no_repeat_ngram", [0, 2])
def test_one_beam_is_greedy_search(alpha, no_repeat_ngram):
    demands = [*DEMANDS, *(Demand(sentence, 9) for sentence in range(20))]
    rules = dict(alpha=alpha, no_repeat_ngram=no_repeat_ngram)
    beam, greedy = search(WORLD, demands, beam_width=1, **rules), choose_along(WORLD, demands, **rules)
    for a, b in zip(beam, greedy, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("run", [tf.function, XLA], ids=["graph", "xla"])
def test_one_beam_takes_the_likelier_of_two_whose_scores_round_to_the_same(run):
    likelier = np.zeros(64, np.float32)
    likelier[[7, 40]] = 2.0, 2.000001

    def step(ids, index, state):
        logits = tf.where(index == 15, likelier, tf.zeros(64))
        return tf.broadcast_to(logits, (*tf.unstack(tf.shape(ids)), 64)), state

    settings = BeamSettings(**SPECIAL, beam_width=1, num_hypotheses=1, alpha=0.0)
    constraints = Constraints(tf.constant([16]), min_lengths=tf.constant([17]))
    found = run(lambda: beam_search(step, lambda s, parents: s, (), constraints, settings, 16))()
    assert found.ids[0, 0, 15] == 40


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_wide_enough_beam_is_never_worse_than_greedy_search(alpha):
    demands = [Demand(sentence, 1 + sentence % 5) for sentence in range(20)]
    beam, greedy = (
        search(SMALL_WORLD, demands, beam_width=32, alpha=alpha),
        choose_along(SMALL_WORLD, demands, alpha=alpha),
    )

    def rank(hypotheses, row):
        score, _, ids = read(hypotheses, row)[0]
        return ids[-1] == EOS, score + 1e-5  # a complete hypothesis is better than an incomplete one

    for row in range(len(demands)):
        complete, score = rank(greedy, row)
        assert rank(beam, row) >= (complete, score - 2e-5)


# --- what comes out


def test_the_alphabet_is_spelled():
    letters = {letter: i + 3 for i, letter in enumerate(string.ascii_lowercase)}

    def step(ids, index, state):  # bos -> a, a -> b, ..., z -> eos; the other ids are a little likely
        following = tf.where(ids == BOS, letters["a"], tf.where(ids == letters["z"], EOS, ids + 1))
        return 5.0 * tf.one_hot(following, 3 + 26), state

    constraints = Constraints(
        max_lengths=tf.constant([50, 50, 7]),
        prefix_ids=tf.constant([[0] * 3, [letters[letter] for letter in "xwv"], [0] * 3]),
        prefix_lengths=tf.constant([0, 3, 0]),
    )
    for width in (1, 2, 4):
        settings = BeamSettings(**SPECIAL, beam_width=width, alpha=0.0)
        found = numpy(beam_search(step, lambda state, parents: state, (), constraints, settings, 50))
        spelled = ["".join(string.ascii_lowercase[i - 3] for i in row[row > EOS]) for row in found.ids[:, 0]]
        assert spelled[:2] == [string.ascii_lowercase, "xwvwxyz"]
        assert found.lengths[:2, 0].tolist() == [27, 8]
        assert width > 1 or spelled[2] == "abcdefg"


@pytest.mark.parametrize("alpha", ALPHAS)
def test_hypotheses_are_sorted_distinct_and_reproducible(alpha):
    found = search(WORLD, DEMANDS, beam_width=5, num_hypotheses=5, alpha=alpha)
    assert np.all(np.diff(np.where(np.isfinite(found.scores), found.scores, -1e9)) <= 0)
    for row, demand in enumerate(DEMANDS):
        hypotheses = read(found, row)
        assert len({ids for _, _, ids in hypotheses}) == len(hypotheses) > 0
        for score, log_prob, ids in hypotheses:
            np.testing.assert_allclose(log_prob, WORLD.log_prob(demand.sentence, ids), rtol=1e-5)
            np.testing.assert_allclose(score, log_prob / penalty(len(ids), alpha), rtol=1e-6)
            assert len(ids) <= demand.limit
            assert PAD not in ids
            assert BOS not in ids
            assert EOS not in ids[:-1]


def test_incomplete_hypotheses_come_only_where_there_is_no_complete_one():
    world = World(5, seed=3)
    world.table[:, EOS] = -100.0  # all the same possible
    (incomplete,) = read(search(world, [Demand(0, 5, min_length=6)], beam_width=32, alpha=1.0), 0)
    (complete,) = read(search(world, [Demand(0, 5)], beam_width=32, alpha=1.0), 0)
    assert EOS not in incomplete[2]
    assert len(incomplete[2]) == 5
    assert complete[2][-1] == EOS
    assert complete[0] < incomplete[0]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_comes_twice(n):
    world = World(6, seed=1)
    demands = [Demand(sentence, 17, min_length=17) for sentence in range(6)]
    found = search(world, demands, beam_width=3, num_hypotheses=3, alpha=0.6, no_repeat_ngram=n)
    free = search(world, demands, beam_width=3, num_hypotheses=3, alpha=0.6)
    hypotheses = [ids for row in range(6) for _, _, ids in read(found, row)]
    assert not any(repeats(ids, n) for ids in hypotheses)
    assert any(repeats(ids, n) for row in range(6) for _, _, ids in read(free, row))


# --- sentences do not see each other


def test_every_sentence_has_its_own_limit():
    demands = [Demand(0, limit, min_length=99) for limit in (4, 0, 7, 1)]
    found = search(WORLD, demands, beam_width=3, num_hypotheses=3, alpha=0.6)
    assert found.lengths.tolist() == [[4, 4, 4], [0, 0, 0], [7, 7, 7], [1, 1, 1]]


def test_a_done_sentence_stays_as_it_is_to_the_last_bit():
    found = [
        search(WORLD, [Demand(0, 3), Demand(1, limit, min_length=limit)], beam_width=3, alpha=0.6) for limit in (3, 40)
    ]
    for short, long in zip(*found, strict=True):
        np.testing.assert_array_equal(short[0, ..., :3], long[0, ..., :3])
    np.testing.assert_array_equal(found[1].ids[0, 0, 3:], PAD)


# --- stopping


def count_steps(world, demands, **settings):
    calls = []

    class Counted(World):
        def step(self, ids, index, state):
            calls.append(int(index))
            return super().step(ids, index, state)

    counted = Counted(world.vocab_size)
    counted.table = world.table
    return search(counted, demands, **settings), len(calls)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("num_hypotheses", [1, 2, 4])
def test_stopping_early_changes_nothing(alpha, num_hypotheses):
    world = World(7, seed=2)
    world.table[:, EOS] += 2.0
    demands = [Demand(sentence, 23) for sentence in range(40)]
    config = dict(beam_width=4, num_hypotheses=num_hypotheses, alpha=alpha)
    early, late = (search(world, demands, early_stopping=stop, **config) for stop in (True, False))
    for a, b in zip(early, late, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_search_ends_as_soon_as_nothing_can_win():
    world = World(7, seed=2)
    world.table[:, EOS] += 2.0
    demands = [Demand(sentence, 50) for sentence in range(10)]
    _, steps = count_steps(world, demands, beam_width=4, alpha=0.0)
    assert steps < 12
    steps_alone = [count_steps(world, [demand], beam_width=4, alpha=0.0)[1] for demand in demands]
    assert steps == max(steps_alone)  # those that are done do not wait for anything
    assert min(steps_alone) < steps
    _, steps = count_steps(world, demands, beam_width=4, alpha=0.0, early_stopping=False)
    assert steps == 50


def test_a_later_hypothesis_that_wins_by_its_length_is_waited_for():
    # eos first: log 0.5. Else one word for sure, nine times, then eos: log 0.5 too, but longer, so of a better score.
    def step(ids, index, state):
        probabilities = tf.where(index == 0, [0, 0, 0.501, 0.499], tf.where(index < 9, [0.0, 0, 0, 1], [0.0, 0, 1, 0]))
        return tf.math.log(tf.zeros_like(ids, tf.float32)[:, :, None] + probabilities), state

    def best(alpha, limit):
        config = BeamSettings(**SPECIAL, beam_width=2, alpha=alpha)
        found = beam_search(step, lambda s, parents: s, (), Constraints(tf.constant([limit])), config, limit)
        return int(found.lengths[0, 0])

    assert best(0.0, 20) == 1
    assert best(0.6, 20) == 10
    assert best(0.6, 9) == 1


# --- broken and masked distributions


def test_masked_ids_never_come_and_the_others_keep_their_ranks():
    world = World(13, seed=5)
    world.table[:, [5, 8]] = -np.inf
    rules = dict(beam_width=3, alpha=0.6)
    found = search(world, DEMANDS[:3], num_hypotheses=3, **rules)
    for row, demand in enumerate(DEMANDS[:3]):
        assert_same(read(found, row), plain_beam_search(world, demand, **rules)[:3])


def test_pad_and_bos_never_come_however_likely():
    world = World(13, seed=5)
    world.table[:, [PAD, BOS]] += 50.0
    found = search(world, DEMANDS[:3], beam_width=3, num_hypotheses=3, alpha=0.6)
    for row, demand in enumerate(DEMANDS[:3]):
        for _, log_prob, ids in read(found, row):
            assert not {PAD, BOS} & set(ids)
            np.testing.assert_allclose(log_prob, world.log_prob(demand.sentence, ids), rtol=1e-5)


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("vocab_size", [13, 7000])
def test_a_broken_distribution_harms_only_its_own_beam(broken, vocab_size):
    world = World(vocab_size, seed=5)

    def step(ids, index, state):
        logits, _ = world.step(ids, index, state)
        return tf.where((ids == 7)[:, :, None] | (state[:, :1, None] == 1), broken, logits), state

    def best(sentences, run=lambda f: f):
        settings = BeamSettings(**SPECIAL, beam_width=3, num_hypotheses=3, alpha=0.6)
        state = WORLD.start(sentences, 3)
        constraints = Constraints(tf.constant([6] * len(sentences)))
        return numpy(run(lambda: beam_search(step, World.reorder, state, constraints, settings, 6))())

    found = best([0, 1, 2], XLA if vocab_size == 13 else tf.function)  # they sort NaN to opposite ends
    assert read(found, 1) == []
    for sentence in (0, 2):
        assert len(read(found, sentence)) > 0
        assert_same(read(found, sentence), read(best([sentence]), 0))
    assert not np.any(found.ids[:, :, :-1] == 7)


def test_a_vocabulary_smaller_than_the_beam_leaves_places_empty():
    found = search(SMALL_WORLD, [Demand(0, 2), Demand(1, 1)], beam_width=9, num_hypotheses=9, alpha=0.6)
    assert [len(read(found, row)) for row in (0, 1)] == [3, 1]  # eos, 3 eos, 4 eos; eos


def test_ties_go_to_the_lower_beam_and_the_lower_id():
    def step(ids, index, state):
        return tf.zeros((*tf.unstack(tf.shape(ids)), 300)), state

    settings = BeamSettings(**SPECIAL, beam_width=2, num_hypotheses=2, alpha=0.0)
    constraints = Constraints(tf.constant([3]), min_lengths=tf.constant([4]))
    for run in (lambda f: f, tf.function, XLA):
        found = run(lambda: beam_search(step, lambda s, parents: s, (), constraints, settings, 3))()
        assert found.ids.numpy().tolist() == [[[3, 3, 3], [3, 3, 4]]]


# --- how it runs


@pytest.mark.parametrize("no_repeat_ngram", [0, 2])
def test_eager_graph_and_compiled_agree(no_repeat_ngram):
    config = dict(beam_width=3, num_hypotheses=2, alpha=0.6, no_repeat_ngram=no_repeat_ngram)
    eager = search(WORLD, DEMANDS, **config)
    for run in (tf.function, XLA):
        found = search(WORLD, DEMANDS, run=run, **config)
        np.testing.assert_array_equal(found.ids, eager.ids)
        np.testing.assert_array_equal(found.lengths, eager.lengths)
        np.testing.assert_allclose(found.log_probs, eager.log_probs, rtol=1e-6)
        np.testing.assert_allclose(found.scores, eager.scores, rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        dict(alpha=-0.1),
        dict(alpha=float("nan")),
        dict(num_hypotheses=4),
        dict(num_hypotheses=0),
        dict(no_repeat_ngram=-1),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        BeamSettings(**{**SPECIAL, "beam_width": 3, "alpha": 0.6, **wrong})


# --- with the network


def test_hypotheses_of_the_transformer_are_scored_the_same_by_teacher_forcing(rng):
    vocab_size, width, max_length = 23, 4, 11
    model = Transformer(vocab_size, num_encoder_layers=1, num_decoder_layers=2, d_model=16, d_ff=29, num_heads=2)
    for weight in model.trainable_variables:  # far from the start, where all is nearly equally likely
        weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    settings = BeamSettings(**SPECIAL, beam_width=width, num_hypotheses=width, alpha=0.6)
    source_ids = rng.integers(3, vocab_size, (3, 7)).astype("int32")
    source_ids[1, 5:] = PAD
    constraints = Constraints(
        max_lengths=np.array([11, 9, 10], "int32"),
        min_lengths=np.array([6, 8, 0], "int32"),
        prefix_ids=np.array([[0, 0], [5, 6], [9, 0]], "int32"),
        prefix_lengths=np.array([0, 2, 1], "int32"),
    )

    def translate(source_ids, constraints, max_length):
        memory, memory_mask = model.encode(source_ids)
        cache = model.start_cache(memory, memory_mask, max_length, width)
        return beam_search(model.step, model.reorder, cache, constraints, settings, max_length)

    numbers, ids = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.int32)
    signature = [ids, Constraints(numbers, numbers, ids, numbers), tf.TensorSpec([], tf.int32)]
    graph = tf.function(translate, input_signature=signature)
    found = numpy(graph(source_ids, constraints, max_length))
    compiled = numpy(tf.function(lambda: translate(source_ids, constraints, max_length), jit_compile=True)())
    np.testing.assert_array_equal(found.ids, compiled.ids)
    np.testing.assert_allclose(found.scores, compiled.scores, rtol=1e-5)

    exists = np.isfinite(found.scores)  # (3, width)
    assert np.all(exists[:2])  # without eos, up to the limit
    assert found.ids[2, 0, found.lengths[2, 0] - 1] == EOS
    assert found.ids[1, :, :2].tolist() == [[5, 6]] * width
    assert len({tuple(ids) for ids in found.ids[exists].tolist()}) == np.sum(exists)

    target_ids = found.ids[exists]
    shifted = np.concatenate([np.full((len(target_ids), 1), BOS), target_ids[:, :-1]], axis=1)
    log_probs = tf.nn.log_softmax(model((np.repeat(source_ids, np.sum(exists, axis=1), axis=0), shifted)))
    of_labels = np.take_along_axis(log_probs.numpy(), target_ids[:, :, None], axis=2)[:, :, 0]
    totals = np.sum(of_labels * (np.arange(max_length) < found.lengths[exists][:, None]), axis=1)
    np.testing.assert_allclose(found.log_probs[exists], totals, atol=1e-4)
    np.testing.assert_allclose(found.scores[exists], totals / length_penalty(found.lengths[exists], 0.6), atol=1e-4)

    for row in range(3):  # alone, with room to spare
        one = Constraints(*(x[row : row + 1] for x in constraints))
        single = numpy(graph(source_ids[row : row + 1], one, max_length + 3))
        np.testing.assert_array_equal(single.ids[0, :, :max_length], found.ids[row])
        np.testing.assert_allclose(single.scores[0], found.scores[row], rtol=1e-5)
