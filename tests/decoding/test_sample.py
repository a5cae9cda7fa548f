import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Transformer
from keras_transformer.decoding import Constraints, SearchSettings, generate, greedy, length_penalty, sampler
from keras_transformer.decoding.sample import FEW
from tests.decoding.worlds import (
    BOS,
    DEMANDS,
    EOS,
    PAD,
    SPECIAL,
    Demand,
    World,
    assert_same,
    choose_along,
    numpy,
    plain_beam_search,
    read,
    repeats,
)

XLA = functools.partial(tf.function, jit_compile=True)
WORLD = World(13, seed=5)
MORE_DEMANDS = [
    *DEMANDS,
    Demand(27, 0),
    Demand(28, 2, prefix=(4, 4, 3)),
    Demand(29, 5, prefix=(4, EOS, 3)),
]


# --- greedy


@pytest.mark.parametrize("no_repeat_ngram", [0, 1, 2])
def test_greedy_search_takes_the_likeliest_id_each_time(no_repeat_ngram):
    rules = dict(alpha=0.6, no_repeat_ngram=no_repeat_ngram)
    found = choose_along(WORLD, MORE_DEMANDS, **rules)
    for row, demand in enumerate(MORE_DEMANDS):
        assert_same(read(found, row), plain_beam_search(WORLD, demand, beam_width=1, **rules))


@pytest.mark.parametrize("choose", [greedy, sampler(tf.range(5))])
def test_it_ends_when_all_sentences_are_done(choose):
    world = World(7, seed=2)
    world.table[:, EOS] += 0.5
    steps = []

    def step(ids, index, state):
        steps.append(int(index))
        return world.step(ids, index, state)

    limits, sentences = tf.constant([50, 3, 50, 50, 0]), list(range(5))
    found = generate(
        step, world.start(sentences, 1), choose, Constraints(limits), SearchSettings(**SPECIAL, alpha=0.0), 50
    )
    assert steps == list(range(max(found.lengths[:, 0].numpy())))
    assert 2 < len(steps) < 50


def test_of_equally_likely_ids_the_lowest_is_taken():
    assert greedy(tf.constant([[-np.inf, 1.0, 3.0, 3.0]]), 0).numpy().tolist() == [2]


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("choose", [greedy, sampler(1), sampler(1, top_k=3, top_p=0.5), sampler(1, top_p=0.5)])
def test_a_broken_distribution_harms_only_its_own_sentence(broken, choose):
    def step(ids, index, state):
        logits, following = WORLD.step(ids, index, state)
        return tf.where(tf.constant([False, True, False])[:, None, None] & (index > 0), broken, logits), following

    def choose_among_numbers(logits, index):
        assert not np.any(np.isnan(logits))
        return choose(logits, index)

    settings = SearchSettings(**SPECIAL, alpha=0.0)
    constraints = Constraints(tf.constant([6, 6, 6]), min_lengths=tf.constant([3, 3, 3]))
    found = numpy(generate(step, WORLD.start([0, 1, 2], 1), choose_among_numbers, constraints, settings, 6))
    assert read(found, 1) == []
    assert np.all(np.isfinite(found.scores[[0, 2]]))


# --- sampling


def draws(logits, choose, count):
    """The first ids of many sentences whose seeds are 0, 1, 2, ..., where nothing is forbidden. -> (count,)"""
    batch = tf.tile(tf.constant(logits, tf.float32)[None], (count, 1))
    return tf.function(choose)(batch, tf.constant(0)).numpy()


def assert_drawn_from(ids, probabilities):
    """A chi-square test; 5 standard deviations from the mean of the statistic."""
    counts, expected = np.bincount(ids, minlength=len(probabilities)), len(ids) * np.asarray(probabilities)
    possible = expected > 0
    assert np.all(counts[~possible] == 0)
    statistic = np.sum((counts - expected)[possible] ** 2 / expected[possible])
    freedom = np.sum(possible) - 1
    assert statistic < freedom + 5 * np.sqrt(2 * max(freedom, 1))


LOGITS = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -np.inf, -3.0])


def softmax(logits):
    return np.exp(logits) / np.sum(np.exp(logits))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_ids_are_drawn_as_often_as_the_softmax_says(temperature):
    ids = draws(LOGITS, sampler(tf.range(5000), temperature=temperature), 5000)
    assert_drawn_from(ids, softmax(LOGITS / temperature))


def test_positions_of_a_sentence_are_drawn_independently():
    choose = tf.function(lambda index: sampler(7)(tf.zeros((1, 2)), index))
    bits = np.array([choose(tf.constant(index)).numpy()[0] for index in range(1000)])
    assert_drawn_from(2 * bits[:-1] + bits[1:], [0.25] * 4)


def test_top_k_draws_from_the_likeliest_alone():
    kept = np.where(np.isin(np.arange(7), [3, 1, 4]), LOGITS, -np.inf)
    assert_drawn_from(draws(LOGITS, sampler(tf.range(5000), top_k=3), 5000), softmax(kept))
    assert_drawn_from(draws(LOGITS, sampler(tf.range(5000), top_k=99), 5000), softmax(LOGITS))
    assert set(draws(np.zeros(7), sampler(tf.range(300), top_k=2), 300)) == {0, 1}  # ties count as well


@pytest.mark.parametrize(("top_p", "size"), [(0.0, 1), (0.5, 1), (0.6, 2), (0.8, 3), (0.9, 4), (0.9999, 6)])
def test_top_p_draws_from_the_fewest_ids_that_have_the_probability(top_p, size):
    likeliest = np.argsort(-LOGITS)[:size]
    probabilities = softmax(LOGITS)[likeliest]
    assert np.sum(probabilities[:-1]) <= top_p <= np.sum(probabilities)
    kept = np.where(np.isin(np.arange(7), likeliest), LOGITS, -np.inf)
    assert_drawn_from(draws(LOGITS, sampler(tf.range(3000), top_p=top_p), 3000), softmax(kept))


def test_top_p_applies_to_what_top_k_and_the_temperature_leave():
    kept = np.where(np.isin(np.arange(7), [3, 1]), LOGITS, -np.inf)  # 0.76, 0.1, 0.04 of 3 at temperature 0.5
    ids = draws(LOGITS, sampler(tf.range(3000), top_k=3, top_p=0.95, temperature=0.5), 3000)
    assert_drawn_from(ids, softmax(kept / 0.5))


def test_top_p_of_a_flat_distribution_goes_beyond_the_likeliest_few(rng):
    logits = rng.normal(0, 0.1, 1009)
    order = np.argsort(-logits)
    probabilities = softmax(logits)[order]
    size = np.sum(np.cumsum(probabilities) - probabilities < 0.5)
    ids = draws(logits, sampler(tf.range(4000), top_p=0.5), 4000)
    assert size > 300
    assert set(ids) <= set(order[:size])
    assert len(set(ids)) > 0.99 * size


def test_what_is_drawn_does_not_depend_on_how_far_the_likeliest_few_reach():
    peaked, flat = np.linspace(0, -40, 1009), np.zeros(1009)
    choose, of_flat = sampler(tf.fill([2], 11), top_p=0.9), []
    for index in range(20):
        alone = sampler(11, top_p=0.9)(tf.constant(peaked[None], tf.float32), index)
        beside = choose(tf.constant(np.stack([peaked, flat]), tf.float32), index)  # the second needs the whole sort
        assert beside[0] == alone[0]
        of_flat.append(int(beside[1]))
    assert max(of_flat) >= FEW


def test_temperature_0_is_greedy_and_sentences_have_their_own():
    demands = [Demand(sentence, 9) for sentence in range(8)]
    expected = choose_along(WORLD, demands).ids
    for options in ({}, dict(top_k=4), dict(top_p=0.9), dict(top_k=4, top_p=0.9)):
        cold = choose_along(WORLD, demands, choose=sampler(3, temperature=0.0, **options)).ids
        mixed = choose_along(WORLD, demands, choose=sampler(3, temperature=tf.constant([0.0, 5.0] * 4), **options)).ids
        np.testing.assert_array_equal(cold, expected)
        np.testing.assert_array_equal(mixed[::2], expected[::2])
        assert np.any(mixed[1::2] != expected[1::2])


@pytest.mark.parametrize("temperature", [1e-30, 1e30, np.inf, np.nan, -1.0])
def test_extreme_temperatures_give_possible_ids(temperature):
    ids = draws(LOGITS, sampler(tf.range(100), temperature=temperature), 100)
    assert set(ids) <= {0, 1, 2, 3, 4, 6}
    if not temperature > 1:
        assert set(ids) == {3}


def test_a_seed_repeats_and_another_gives_something_else():
    demands = [Demand(0, 9, min_length=9)] * 2
    first, again, other = (
        choose_along(WORLD, demands, choose=sampler(tf.constant(seeds))).ids for seeds in ([1, 2], [1, 2], [3, 1])
    )
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(other[1], first[0])
    assert len(np.unique(np.concatenate([first, other]), axis=0)) == 3


@pytest.mark.parametrize("options", [{}, dict(top_k=5), dict(top_p=0.8)])
def test_a_sentence_draws_the_same_alone_and_in_any_company(options):
    number = len(MORE_DEMANDS)
    seeds, temperatures = np.arange(100, 100 + number), np.linspace(0.2, 2, number).astype("float32")

    def draw(rows, max_length):
        choose = sampler(tf.constant(seeds[rows]), temperature=tf.constant(temperatures[rows]), **options)
        found = choose_along(WORLD, [MORE_DEMANDS[row] for row in rows], choose=choose, max_length=max_length)
        return [read(found, i) for i in range(len(rows))]

    alone = [draw([row], 9)[0] for row in range(number)]
    for rows, max_length in (([3, 1, 4], 9), ([*reversed(range(number))], 17)):
        for row, found in zip(rows, draw(rows, max_length), strict=True):
            assert_same(found, alone[row], tolerance=1e-6)


def test_what_is_drawn_keeps_to_the_constraints():
    seeds = tf.range(len(MORE_DEMANDS))
    found = choose_along(WORLD, MORE_DEMANDS, choose=sampler(seeds, temperature=3.0), no_repeat_ngram=2, alpha=0.6)
    for row, demand in enumerate(MORE_DEMANDS):
        ((score, log_prob, ids),) = read(found, row)
        assert ids[: len(demand.prefix)] == demand.prefix[: len(ids)]
        assert len(ids) == demand.limit or (ids[-1] == EOS and demand.min_length <= len(ids) < demand.limit)
        assert not {PAD, BOS} & set(ids)
        assert not repeats(ids[max(len(demand.prefix) - 1, 0) :], 2)
        np.testing.assert_allclose(log_prob, WORLD.log_prob(demand.sentence, ids), rtol=1e-5)  # of temperature 1
        np.testing.assert_allclose(score, log_prob / length_penalty(len(ids), 0.6), rtol=1e-6)


# --- how it runs


@pytest.mark.parametrize("options", [None, {}, dict(top_p=0.8), dict(top_k=5, top_p=0.8)])
def test_eager_graph_and_compiled_agree(options):
    seeds = tf.range(len(MORE_DEMANDS))
    choose = greedy if options is None else sampler(seeds, temperature=1.5, **options)
    eager = choose_along(WORLD, MORE_DEMANDS, choose=choose, no_repeat_ngram=2)
    for run in (tf.function, XLA):
        found = choose_along(WORLD, MORE_DEMANDS, choose=choose, no_repeat_ngram=2, run=run)
        np.testing.assert_array_equal(found.ids, eager.ids)
        np.testing.assert_array_equal(found.lengths, eager.lengths)
        np.testing.assert_allclose(found.log_probs, eager.log_probs, rtol=1e-6)


def test_a_graph_takes_any_batch_even_an_empty_one_and_any_room():
    numbers = tf.TensorSpec([None], tf.int32)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 1], tf.int32),
            numbers,
            numbers,
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([], tf.int32),
        ]
    )
    def f(state, limits, seeds, temperatures, room):
        choose = sampler(seeds, temperature=temperatures, top_k=7, top_p=0.9)
        return generate(WORLD.step, state, choose, Constraints(limits), SearchSettings(**SPECIAL, alpha=0.0), room)

    found = f(WORLD.start([0, 1, 2], 1), [9, 4, 0], [1, 2, 3], [1.0, 0.5, 1.0], 9)
    assert found.ids.shape == (3, 1, 9)
    alone = f(WORLD.start([1], 1), [4], [2], [0.5], 6)
    np.testing.assert_array_equal(alone.ids[0, 0], found.ids[1, 0, :6])
    assert f(WORLD.start([], 1), np.zeros(0, "int32"), np.zeros(0, "int32"), np.zeros(0), 9).ids.shape == (0, 1, 9)


def test_the_transformer_continues_greedily_as_teacher_forcing_would(rng):
    model = Transformer(23, num_encoder_layers=1, num_decoder_layers=2, d_model=16, d_ff=29, num_heads=2)
    for weight in model.trainable_variables:
        weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    source_ids = rng.integers(3, 23, (3, 7)).astype("int32")
    source_ids[1, 4:] = PAD
    memory, memory_mask = model.encode(source_ids)
    constraints = Constraints(tf.constant([9, 5, 9]), min_lengths=tf.constant([9, 1, 4]))
    settings = SearchSettings(**SPECIAL, alpha=0.0)
    cache = model.start_cache(memory, memory_mask, 9)
    found = numpy(tf.function(lambda: generate(model.step, cache, greedy, constraints, settings, 9))())
    for row in range(3):
        ((_, log_prob, ids),) = read(found, row)
        target_ids = np.array([(BOS, *ids[:-1])])
        log_probs = tf.nn.log_softmax(model((source_ids[row : row + 1], target_ids)))[0].numpy()
        np.testing.assert_allclose(log_prob, np.sum(log_probs[np.arange(len(ids)), ids]), atol=1e-4)
        log_probs[:, [PAD, BOS]] = -np.inf
        log_probs[: constraints.min_lengths[row] - 1, EOS] = -np.inf
        assert np.argmax(log_probs, axis=1).tolist() == list(ids)
