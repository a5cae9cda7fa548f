import functools
import string

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer import Transformer
from keras_transformer.decoding import BeamSettings, Constraints, Room, Steps, beam_search, length_penalty
from tests.decoding.worlds import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    Demand,
    World,
    assert_same,
    brute_force,
    choose_along,
    constraints_of,
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
DEMANDS = [
    Demand(20, 9),
    Demand(21, 7, min_length=5),
    Demand(22, 3),
    Demand(23, 9, prefix=(7, 3, 3)),
    Demand(24, 8, min_length=8, prefix=(12,)),
    Demand(25, 1),
    Demand(26, 9, min_length=10),
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


@pytest.mark.parametrize("beam_width", [1, 3])
@pytest.mark.parametrize(
    ("limits", "rows"),
    [
        ([2, 9, 2, 2, 2, 2, 9, 2], [8] * 2 + [2] * 7),
        ([9, 3, 4, 5, 6, 7, 8], [7] * 7 + [2] * 2),
        ([2, 9, 2], [3] * 9),  # too few for one of them to be few
        ([4, 4, 4, 4], [4] * 4),
        ([0, 0, 5, 0], [1] * 5),
    ],
)
def test_the_last_sentences_go_on_as_a_batch_of_their_own(limits, rows, beam_width):
    class Watched(World):
        def step(self, ids, index, state):
            seen.append(ids.shape[0])
            return super().step(ids, index, state)

    world, rules, seen = Watched(13, seed=5), dict(beam_width=beam_width, alpha=0.6), []
    demands = [Demand(30 + number, limit, min_length=20) for number, limit in enumerate(limits)]  # none ends before
    found = search(world, demands, **rules)
    assert seen == rows
    for row, demand in enumerate(demands):
        assert_same(read(found, row), plain_beam_search(world, demand, **rules)[:1])


class Roomy(World):
    """A world whose state has a slot a step, and is lost without it; there it goes on from what the slot before says.

    Notes how many sentences each step had, and room for how many steps.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.seen = []

    def begin(self, sentences, width):
        self.seen.clear()
        return self.start(sentences, width), tf.zeros((len(sentences), width, 0), tf.int32)

    def step(self, ids, index, state):
        numbers, slots = state
        self.seen.append((slots.shape[0], slots.shape[2]))
        places = tf.range(tf.shape(slots)[2])
        before = tf.reduce_sum(tf.where(places == index - 1, slots, 0), axis=2)
        logits, numbers = super().step(ids, index, tf.where(tf.equal(index, 0), numbers, before))
        return logits, (numbers, tf.where(places == index, numbers[:, :, None], slots))

    @staticmethod
    def reorder(state, parents):
        return tuple(tf.gather(part, parents, batch_dims=1) for part in state)

    @staticmethod
    def grow(state, steps):
        numbers, slots = state
        return numbers, tf.pad(slots, [[0, 0], [0, 0], [0, steps - tf.shape(slots)[2]]])


@pytest.mark.parametrize(
    ("first_steps", "limits", "seen"),
    [
        (None, [20, 20, 20], [(3, 8)] * 8 + [(3, 16)] * 8 + [(3, 20)] * 4),
        (None, [11, 10, 2, 2, 2, 3, 11, 2], [(8, 8)] * 8 + [(8, 11)] * 2 + [(2, 11)]),
        (None, [3, 90, 4, 2], [(4, 12)] * 4 + [(1, n) for n in (*range(12, 90, 12), 90) for _ in range(12)][4:90]),
        (None, [0, 1], [(2, 1)]),
        (5, [9] * 8, [(8, 5)] * 5 + [(2, 9)] * 4 * 4),  # all outgrow it
        (5, [9] * 5, [(5, 5)] * 5 + [(2, 9)] * 4 * 3),
        (5, [9, 3, 3, 3, 3, 3, 3, 9], [(8, 5)] * 3 + [(2, 9)] * 6),
        (5, [9, 3, 9, 3, 6, 3, 3, 9], [(8, 5)] * 5 + [(2, 9)] * 4 * 2),
        (5, [20, 3, 6, 6, 3, 3, 3, 3], [(8, 5)] * 5 + [(2, 20)] * (15 + 1)),  # who is done waits for nobody
        (5, [9, 2, 9], [(3, 9)] * 9),  # too few for some of them to be last ones
        (50, [9] * 4, [(4, 9)] * 9),
    ],
)
def test_a_state_gets_the_room_that_it_needs(first_steps, limits, seen):
    world, max_length = Roomy(13, seed=5), max(limits)
    demands = [Demand(40 + number, limit, min_length=99) for number, limit in enumerate(limits)]  # none ends before
    config = BeamSettings(**SPECIAL, beam_width=3, alpha=0.6)
    steps = Steps(lambda: world.step, lambda: world.step, room=Room(world.grow, first_steps))

    def find():
        state = world.begin([d.sentence for d in demands], 3)
        return beam_search(steps, world.reorder, state, constraints_of(demands), config, max_length)

    found = [numpy(find())]
    assert world.seen == seen
    found.append(numpy(tf.function(find, jit_compile=first_steps is not None, autograph=False)()))
    for hypotheses in found:
        for row, demand in enumerate(demands):
            assert_same(read(hypotheses, row), plain_beam_search(world, demand, beam_width=3, alpha=0.6)[:1])


@pytest.mark.parametrize("no_repeat_ngram", [0, 2])
@pytest.mark.parametrize("width", [1, 3, 40])  # more beams than step 0 has continuations
def test_step_0_may_have_one_beam(width, no_repeat_ngram):
    def step(ids, index, state):
        seen.append(ids.shape[1])
        return WORLD.step(ids, index, state)

    seen, demands, rules = [], [*DEMANDS, Demand(27, 0)], dict(alpha=0.6, no_repeat_ngram=no_repeat_ngram)
    steps = Steps(lambda: step, lambda: step, first_apart=True)
    config = BeamSettings(**SPECIAL, beam_width=width, num_hypotheses=width, **rules)

    def find():
        state = WORLD.start([d.sentence for d in demands], width)
        return beam_search(steps, WORLD.reorder, state, constraints_of(demands), config, 9)

    found = numpy(find())
    assert seen == [1] + [width] * (len(seen) - 1) and len(seen) > 1
    for hypotheses in (found, numpy(tf.function(find, autograph=False)())):
        for row, demand in enumerate(demands):
            assert_same(read(hypotheses, row), plain_beam_search(WORLD, demand, beam_width=width, **rules)[:width])


# --- against greedy search


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("no_repeat_ngram", [0, 2])
def test_one_beam_is_greedy_search(alpha, no_repeat_ngram):
    demands = [*DEMANDS, *(Demand(sentence, 9) for sentence in range(20))]
    rules = dict(alpha=alpha, no_repeat_ngram=no_repeat_ngram)
    beam, greedy = search(WORLD, demands, beam_width=1, **rules), choose_along(WORLD, demands, **rules)
    for a, b in zip(beam, greedy, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


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


COMPANY = [*DEMANDS, *(Demand(sentence, 3 + sentence % 7, min_length=sentence % 3) for sentence in range(12))]


class Counted:
    """The steps of WORLD for many rows and for few; how many sentences each step had, and how often one was made."""

    def __init__(self):
        self.many, self.few, self.made = [], [], []

    def of(self, name):
        def step(ids, index, state):
            getattr(self, name).append(ids.shape[0])
            return WORLD.step(ids, index, state)

        self.made.append(name)
        return step

    def steps(self, few_rows):
        return Steps(lambda: self.of("many"), lambda: self.of("few"), few_rows)


@pytest.mark.parametrize(
    ("num_sentences", "many", "few"), [(1, set(), {1}), (2, set(), {2}), (3, {3}, set()), (16, {16}, {4})]
)
def test_few_rows_have_a_step_of_their_own(num_sentences, many, few):
    demands, counted = COMPANY[:num_sentences], Counted()
    state, constraints = WORLD.start([d.sentence for d in demands], 3), constraints_of(demands)
    config = BeamSettings(**SPECIAL, beam_width=3, num_hypotheses=2, alpha=0.6)

    found = numpy(beam_search(counted.steps(few_rows=6), WORLD.reorder, state, constraints, config, 9))
    assert set(counted.many) == many and set(counted.few) == few
    assert counted.made == ["many"] * bool(many) + ["few"] * bool(few)
    assert len(counted.many) + len(counted.few) <= 9
    in_a_graph = tf.function(lambda: beam_search(counted.steps(6), WORLD.reorder, state, constraints, config, 9))
    again = numpy(in_a_graph())
    for row, demand in enumerate(demands):
        expected = plain_beam_search(WORLD, demand, beam_width=3, alpha=0.6)[:2]
        assert_same(read(found, row), expected)
        assert_same(read(again, row), expected)


@functools.cache
def graph_for_any_batch(few_rows=0):
    world = Roomy(13, seed=5)
    config = BeamSettings(**SPECIAL, beam_width=3, num_hypotheses=2, alpha=0.6, no_repeat_ngram=3)
    numbers, ids = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.int32)

    @tf.function(
        input_signature=[tf.TensorSpec([None, 3], tf.int32), numbers, numbers, ids, tf.TensorSpec([], tf.int32)]
    )
    def f(numbers, limits, min_lengths, prefix_ids, max_length):
        prefix_lengths = tf.reduce_sum(tf.cast(prefix_ids != PAD, tf.int32), axis=1)
        constraints = Constraints(limits, min_lengths, prefix_ids, prefix_lengths)
        if not few_rows:
            return beam_search(WORLD.step, WORLD.reorder, numbers, constraints, config, max_length)
        steps = Steps(lambda: world.step, lambda: world.step, few_rows, Room(world.grow), first_apart=True)
        state = numbers, tf.zeros((*tf.unstack(tf.shape(numbers)), 0), tf.int32)
        return beam_search(steps, world.reorder, state, constraints, config, max_length)

    return f


def search_company(demands, prefix_room=0, max_length=9, few_rows=0):
    prefix_ids = np.zeros((len(demands), prefix_room + max(len(d.prefix) for d in demands)), "int32")
    for row, demand in enumerate(demands):
        prefix_ids[row, : len(demand.prefix)] = demand.prefix
    limits, min_lengths = ([getattr(d, name) for d in demands] for name in ("limit", "min_length"))
    state = WORLD.start([d.sentence for d in demands], 3)
    return numpy(graph_for_any_batch(few_rows)(state, limits, min_lengths, prefix_ids, max_length))


@functools.cache
def alone(row):
    return search_company([COMPANY[row]])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.integers(0, len(COMPANY) - 1), min_size=1, max_size=12),
    max_length=st.integers(9, 14),
    prefix_room=st.integers(0, 3),
    few_rows=st.sampled_from([0, 15]),  # 15 rows are 5 sentences
)
def test_a_sentence_gets_the_same_alone_and_in_any_company(rows, max_length, prefix_room, few_rows):
    found = search_company([COMPANY[row] for row in rows], prefix_room, max_length, few_rows)
    for i, row in enumerate(rows):
        expected = alone(row)
        np.testing.assert_array_equal(found.ids[i, :, :9], expected.ids[0])
        np.testing.assert_array_equal(found.ids[i, :, 9:], PAD)
        np.testing.assert_array_equal(found.lengths[i], expected.lengths[0])
        # Not to the last bit: exp and log of Eigen's vectors and of what is left over at the end of an array differ.
        np.testing.assert_allclose(found.scores[i], expected.scores[0], rtol=5e-7)
        np.testing.assert_allclose(found.log_probs[i], expected.log_probs[0], rtol=5e-7)


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


def test_a_graph_takes_any_batch_even_an_empty_one_and_any_room():
    settings = BeamSettings(**SPECIAL, beam_width=3, num_hypotheses=2, alpha=0.6, no_repeat_ngram=2)
    specs = [tf.TensorSpec([None, 3], tf.int32), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.int32)]

    @tf.function(input_signature=[*specs, tf.TensorSpec([], tf.int32)])
    def f(state, limits, prefix_ids, room):
        prefix_lengths = tf.reduce_sum(tf.cast(prefix_ids != PAD, tf.int32), axis=1)
        constraints = Constraints(limits, tf.zeros_like(limits), prefix_ids, prefix_lengths)
        return beam_search(WORLD.step, WORLD.reorder, state, constraints, settings, room)

    demands = [Demand(0, 9), Demand(1, 4, prefix=(5,))]
    expected = search(WORLD, demands, beam_width=3, num_hypotheses=2, alpha=0.6, no_repeat_ngram=2)
    found = f(WORLD.start([0, 1], 3), [9, 4], [[0], [5]], 9)
    np.testing.assert_array_equal(found.ids, expected.ids)
    found = f(WORLD.start([0], 3), [9], np.zeros((1, 0), "int32"), 11)
    np.testing.assert_array_equal(found.ids[:, :, :9], expected.ids[:1])
    assert f(WORLD.start([], 3), np.zeros(0, "int32"), np.zeros((0, 4), "int32"), 9).ids.shape == (0, 2, 9)
    assert f(WORLD.start([0], 3), [9], np.zeros((1, 1), "int32"), 0).ids.shape == (1, 2, 0)


def test_limits_beyond_the_room_are_cut():
    found = search(WORLD, [Demand(0, 40, min_length=50)], beam_width=3, alpha=0.6, max_length=6)
    assert found.lengths.tolist() == [[6]]
    np.testing.assert_allclose(found.scores, found.log_probs / length_penalty(6, 0.6), rtol=1e-6)


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
