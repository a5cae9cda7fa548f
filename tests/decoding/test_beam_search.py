"""Going over a batch: who goes on with whom, with how much room, and that nobody notices."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.decoding import BeamSettings, Constraints, Room, Steps, beam_search, length_penalty
from tests.decoding.worlds import (
    DEMANDS,
    PAD,
    SPECIAL,
    Demand,
    World,
    assert_same,
    constraints_of,
    numpy,
    plain_beam_search,
    read,
    search,
)

WORLD = World(13, seed=5)


# --- the last ones


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
        (5, [9] * 8, [(8, 3)] * 3 + [(8, 5)] * 2 + [(2, 9)] * 4 * 4),  # all outgrow it
        (5, [9] * 5, [(5, 3)] * 3 + [(5, 5)] * 2 + [(2, 9)] * 4 * 3),
        (5, [9, 3, 3, 3, 3, 3, 3, 9], [(8, 3)] * 3 + [(2, 9)] * 6),
        (5, [9, 2, 2, 2, 2, 2, 2, 9], [(8, 3)] * 2 + [(2, 9)] * 7),  # before half of it is full
        (5, [9, 3, 9, 3, 6, 3, 3, 9], [(8, 3)] * 3 + [(8, 5)] * 2 + [(2, 9)] * 4 * 2),
        (5, [20, 3, 6, 6, 3, 3, 3, 3], [(8, 3)] * 3 + [(8, 5)] * 2 + [(2, 20)] * (15 + 1)),  # none waits for the others
        (5, [9, 2, 9], [(3, 3)] * 3 + [(3, 9)] * 6),  # too few for some of them to be last ones
        (5, [2, 1, 2], [(3, 1), (3, 2)]),
        (50, [9] * 4, [(4, 5)] * 5 + [(4, 9)] * 4),
        (1, [2, 2], [(2, 1), (2, 2)]),
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


# --- sentences do not see each other


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


# --- how large


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
