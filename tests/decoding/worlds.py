"""Languages without a network, and searches through them that are obviously right: lists, dicts and recursion.

A `World` is a random table. What follows a history depends on all of it and on the sentence, through a state that must
be carried and reordered, so that a search that mixes up its beams or its sentences gives something else.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_transformer.decoding import BeamSettings, Constraints, SearchSettings, beam_search, generate, greedy

PAD, BOS, EOS = 0, 1, 2
SPECIAL = dict(pad_id=PAD, bos_id=BOS, eos_id=EOS)
NUM_STATES = 499


@dataclasses.dataclass(frozen=True)
class Demand:
    """What one sentence asks for."""

    sentence: int
    limit: int
    min_length: int = 0
    prefix: tuple[int, ...] = ()


# One batch, so that every sentence is searched beside others that want something else.
DEMANDS = [
    Demand(20, 9),
    Demand(21, 7, min_length=5),
    Demand(22, 3),
    Demand(23, 9, prefix=(7, 3, 3)),
    Demand(24, 8, min_length=8, prefix=(12,)),
    Demand(25, 1),
    Demand(26, 9, min_length=10),
]


class World:
    def __init__(self, vocab_size, seed=0, scale=2.0):
        table = np.random.default_rng(seed).normal(0, scale, (NUM_STATES, vocab_size))
        self.table = table.astype("float32")

    @property
    def vocab_size(self):
        return self.table.shape[1]

    # --- as a search sees it

    def start(self, sentences, width):
        return tf.tile(tf.constant(sentences, tf.int32, shape=(len(sentences), 1)), (1, width))

    def step(self, ids, index, state):
        state = advance(state, ids, index)
        return tf.gather(self.table, state), state

    @staticmethod
    def reorder(state, parents):
        return tf.gather(state, parents, batch_dims=1)

    # --- as one reads it

    def log_probs(self, sentence, history):
        """The log-probabilities of what may follow `history`. -> (V,) float64"""
        state = sentence
        for index, token in enumerate((BOS, *history)):
            state = advance(state, token, index)
        logits = self.table[state].astype("float64")
        return logits - np.log(np.sum(np.exp(logits)))

    def log_prob(self, sentence, ids):
        return sum(self.log_probs(sentence, ids[:i])[token] for i, token in enumerate(ids))


def advance(state, token, index):
    return (state * 37 + token * 11 + index * 5 + 1) % NUM_STATES


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def repeats(ids, n):
    """Whether some n tokens in a row occur twice."""
    grams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
    return n > 0 and len(set(grams)) < len(grams)


def possible(world, demand, ids, no_repeat_ngram=0):
    """What may follow `ids`: {token: log-probability}."""
    log_probs = world.log_probs(demand.sentence, ids)
    if len(ids) < len(demand.prefix):
        tokens = [demand.prefix[len(ids)]]
    else:
        tokens = [t for t in range(world.vocab_size) if t not in (PAD, BOS)]
        tokens = [t for t in tokens if t != EOS or len(ids) + 1 >= demand.min_length]
        tokens = [t for t in tokens if not repeats_newly((*ids, t), no_repeat_ngram)]
    return {t: log_probs[t] for t in tokens if log_probs[t] > -np.inf}


def repeats_newly(ids, n):
    return n > 0 and len(ids) >= n and any(ids[i : i + n] == ids[-n:] for i in range(len(ids) - n))


def ranked(complete, incomplete, alpha):
    """[(score, log_prob, ids)], best first, from two dicts {ids: log_prob}: incomplete ones where there is no other."""
    scored = [
        (log_prob / penalty(len(ids), alpha), log_prob, ids) for ids, log_prob in (complete or incomplete).items()
    ]
    return sorted(scored, reverse=True)


def brute_force(world, demand, *, alpha, no_repeat_ngram=0):
    """All hypotheses that there are."""
    complete, incomplete = {}, {}

    def grow(ids, log_prob):
        if ids and ids[-1] == EOS:
            complete[ids] = log_prob
        elif len(ids) == demand.limit:
            incomplete[ids] = log_prob
        else:
            for token, more in possible(world, demand, ids, no_repeat_ngram).items():
                grow((*ids, token), log_prob + more)

    grow((), 0.0)
    return ranked(complete, incomplete, alpha)


def plain_beam_search(world, demand, *, beam_width, alpha, no_repeat_ngram=0):
    """Beam search from its definition, up to the limit, without stopping early."""
    live, finished = {(): 0.0}, {}
    for _ in range(demand.limit):
        candidates = {
            (*ids, token): log_prob + more
            for ids, log_prob in live.items()
            for token, more in possible(world, demand, ids, no_repeat_ngram).items()
        }
        best = sorted(candidates, key=candidates.get, reverse=True)[: 2 * beam_width if beam_width > 1 else 1]
        finished |= {ids: candidates[ids] for ids in best if ids[-1] == EOS}
        live = {ids: candidates[ids] for ids in [ids for ids in best if ids[-1] != EOS][:beam_width]}
    return ranked(finished, live, alpha)


# --- the searches under test, for demands


def constraints_of(demands):
    longest = max(len(d.prefix) for d in demands)
    return Constraints(
        max_lengths=tf.constant([d.limit for d in demands]),
        min_lengths=tf.constant([d.min_length for d in demands]),
        prefix_ids=tf.constant([d.prefix + (PAD,) * (longest - len(d.prefix)) for d in demands], tf.int32),
        prefix_lengths=tf.constant([len(d.prefix) for d in demands]),
    )


def search(world, demands, *, max_length=None, run=lambda f: f, **settings):
    """Beam search; `run` may compile. -> Hypotheses of NumPy arrays"""
    settings = BeamSettings(**SPECIAL, **settings)
    max_length = max(d.limit for d in demands) if max_length is None else max_length
    state = world.start([d.sentence for d in demands], settings.beam_width)
    constraints = constraints_of(demands)

    def f():
        return beam_search(world.step, world.reorder, state, constraints, settings, max_length)

    return numpy(run(f)())


def choose_along(world, demands, *, choose=greedy, max_length=None, run=lambda f: f, alpha=0.6, **settings):
    """Greedy search or sampling. -> Hypotheses of NumPy arrays"""
    settings = SearchSettings(**SPECIAL, alpha=alpha, **settings)
    max_length = max(d.limit for d in demands) if max_length is None else max_length
    state = world.start([d.sentence for d in demands], 1)
    constraints = constraints_of(demands)

    def f():
        return generate(world.step, state, choose, constraints, settings, max_length)

    return numpy(run(f)())


def numpy(hypotheses):
    return type(hypotheses)(*(x.numpy() for x in hypotheses))


def read(hypotheses, row):
    """[(score, log_prob, ids)] of a sentence, the empty places left out; what stands behind the end is checked."""
    found = []
    for ids, score, log_prob, length in zip(*(x[row] for x in hypotheses), strict=True):
        assert np.all(ids[length:] == PAD)
        if score > -np.inf:
            found.append((score, log_prob, tuple(ids[:length].tolist())))
        else:
            assert length == 0
            assert log_prob == -np.inf
    return found


def assert_same(found, expected, tolerance=1e-5):
    """Two lists of (score, log_prob, ids)."""
    assert [ids for _, _, ids in found] == [ids for _, _, ids in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one[:2], other[:2], atol=tolerance, rtol=tolerance)
