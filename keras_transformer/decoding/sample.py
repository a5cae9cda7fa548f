"""Greedy search and sampling: one loop, and a function that chooses.

    generate(step, state, greedy, ...)
    generate(step, state, sampler(seeds, temperature=0.8, top_k=40), ...)

The log-probabilities of the outcome are the model's own, whatever the temperature: scoring the pair gives the same.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding import scoring
from keras_transformer.decoding.constraints import forbidden, forced, within, without_repeats
from keras_transformer.decoding.scoring import MINUS_INFINITY, Blocks, length_penalty, log_normaliser, top_k_of_rows
from keras_transformer.decoding.types import Hypotheses

FEW = 128  # likeliest ids that are tried for `top_p` before the whole vocabulary is sorted


class _Generation(NamedTuple):
    """A generation between two steps. Axis 0 of everything is the batch."""

    state: Any  # of the step function
    ids: tf.Tensor  # (B, T)
    log_probs: tf.Tensor  # (B,), -inf: nothing was possible
    lengths: tf.Tensor  # (B,)
    done: tf.Tensor  # (B,)


def generate(step, state, choose, constraints, settings, max_length):
    """Generates one hypothesis for each sentence (W = 1), an id at a time. -> Hypotheses

    A hypothesis ends with eos, or at its limit without it.

    Args:
        step: StepFn over (B, 1) ids.
        state: what `step` gets at index 0.
        choose: Choose, `greedy` or a `sampler`.
        constraints: Constraints, a row a sentence.
        settings: SearchSettings; alpha is for the scores alone.
        max_length: T, positions there is room for; an int under XLA.
    """
    constraints = within(constraints, max_length)

    def going_on(_, generation):
        return ~tf.reduce_all(generation.done)

    def advance(index, generation):
        last_ids = tf.gather(generation.ids, tf.maximum(index - 1, 0), axis=1)  # (B,)
        ids = tf.where(index == 0, settings.bos_id, last_ids)
        logits, state = step(ids[:, None], index, generation.state)
        ids, log_probs = _next_ids(choose, logits[:, 0], index, generation, constraints, settings)
        after = _append(index, generation, state, ids, log_probs, constraints, settings)
        tf.nest.map_structure(lambda new, old: new.set_shape(old.shape), after, generation)
        return index + 1, after

    _, generation = tf.while_loop(going_on, advance, (tf.constant(0), _start(state, constraints, settings, max_length)))
    return _hypotheses(generation, settings)


def _start(state, constraints, settings, max_length):
    nothing = tf.zeros_like(constraints.max_lengths)
    ids = tf.fill((tf.shape(nothing)[0], max_length), settings.pad_id)
    return _Generation(state, ids, tf.cast(nothing, tf.float32), nothing, done=constraints.max_lengths <= 0)


def _next_ids(choose, logits, index, generation, constraints, settings):
    """The next ids and their log-probabilities; -inf where no id is possible. (B, V) -> (B,), (B,)"""
    logits = tf.cast(logits, tf.float32)
    normalisers = log_normaliser(Blocks.of(logits[:, None]))[:, 0]  # (B,), over all ids, also forbidden ones
    possible = without_repeats(logits, generation.ids, index, settings)
    never = forbidden(tf.range(logits.shape[1])[None], index, constraints, settings)  # (B or 1, V)
    possible = tf.where(never | ~tf.math.is_finite(normalisers)[:, None], MINUS_INFINITY, possible)
    ids = choose(possible, index)
    if constraints.prefix_ids is not None:
        forced_ids, is_forced = forced(constraints, index)
        ids = tf.where(is_forced, forced_ids, ids)
        possible = tf.where(is_forced[:, None], logits, possible)
    log_probs = tf.gather(possible, ids, batch_dims=1) - normalisers
    return ids, tf.where(tf.math.is_finite(log_probs), log_probs, MINUS_INFINITY)


def _append(index, generation, state, ids, log_probs, constraints, settings):
    """The generation with one more id for every sentence that is not done."""
    done = generation.done
    here = (tf.range(tf.shape(generation.ids)[1]) == index) & ~done[:, None]  # (B, T)
    log_probs = tf.where(done, generation.log_probs, generation.log_probs + log_probs)
    ends = (ids == settings.eos_id) | (index + 1 >= constraints.max_lengths) | (log_probs == MINUS_INFINITY)
    return _Generation(
        state=state,
        ids=tf.where(here, ids[:, None], generation.ids),
        log_probs=log_probs,
        lengths=tf.where(done, generation.lengths, index + 1),
        done=done | ends,
    )


def _hypotheses(generation, settings):
    exists = generation.log_probs > MINUS_INFINITY  # (B,)
    hypotheses = Hypotheses(
        ids=tf.where(exists[:, None], generation.ids, settings.pad_id),
        scores=generation.log_probs / length_penalty(generation.lengths, settings.alpha),
        log_probs=generation.log_probs,
        lengths=tf.where(exists, generation.lengths, 0),
    )
    return Hypotheses(*(tf.expand_dims(x, 1) for x in hypotheses))


def greedy(logits, index):
    """The likeliest id, of equal ones the lowest. (B, V) -> (B,)"""
    return tf.argmax(logits, axis=1, output_type=tf.int32)


def sampler(seeds, *, temperature=1.0, top_k=0, top_p=1.0):
    """A choose function that draws from softmax(logits / temperature), cut off to the likeliest ids.

    What a sentence draws at a position depends on its seed and the position, not on its batch. Equal seeds draw alike.

    Args:
        seeds: (B,) or a scalar for all sentences, integers.
        temperature: (B,) or a scalar; 0 (or less) takes the likeliest id.
        top_k: draw from the `top_k` likeliest ids; 0: all.
        top_p: draw from the likeliest ids that together have this probability, a number; the likeliest id is always
            among them. 1.0: all.
    """
    seeds, temperature = tf.convert_to_tensor(seeds), tf.convert_to_tensor(temperature, tf.float32)
    cut = top_p < 1.0

    def choose(logits, index):
        batch, vocab_size = tf.shape(logits)[0], logits.shape[1]
        row_seeds, row_temperature = tf.broadcast_to(seeds, (batch,)), tf.broadcast_to(temperature, (batch,))

        def draw(logits):
            """An index of the last axis. (B, K) -> (B,)"""
            noisy = logits + _gumbel(row_seeds, index, logits.shape[1])
            hot = row_temperature > 0  # not NaN, not negative
            return tf.argmax(tf.where(hot[:, None], noisy, logits), axis=1, output_type=tf.int32)

        def draw_of(best, ids, normalisers):
            kept = _nucleus(best, normalisers, top_p) if cut else best
            return tf.gather(ids, draw(kept), batch_dims=1)

        if top_k:
            best, ids = scoring.top_k(logits, min(top_k, vocab_size))  # (B, K), likeliest first
            best = _tempered(best, row_temperature)
            return draw_of(best, ids, tf.reduce_logsumexp(best, axis=1))
        logits = _tempered(logits, row_temperature)
        if not cut:
            return draw(logits)
        # Sorting the whole vocabulary takes longer than the network; mostly the likeliest few make up `top_p`.
        blocks = Blocks.of(logits[:, None])
        normalisers = log_normaliser(blocks)[:, 0]  # (B,)
        best, _, ids = top_k_of_rows(blocks, min(FEW, vocab_size))
        enough = tf.reduce_sum(tf.exp(best - normalisers[:, None]), axis=1) >= top_p  # (B,)
        return tf.cond(
            tf.reduce_all(enough),
            lambda: draw_of(best, ids, normalisers),
            lambda: draw_of(*tf.math.top_k(logits, vocab_size), normalisers),
        )

    return choose


def _tempered(logits, temperature):
    """(B, V), (B,) -> (B, V), the greatest becomes 0; a temperature that is not positive counts as 1"""
    best = tf.reduce_max(logits, axis=1, keepdims=True)
    positive = tf.where(temperature > 0, temperature, 1.0)[:, None]
    return tf.where(logits == MINUS_INFINITY, MINUS_INFINITY, (logits - best) / positive)


def _nucleus(logits, normalisers, top_p):
    """Minus infinity for all but the first ids that together have probability `top_p`, more than 0.

    (B, K) likeliest first, (B,) -> (B, K)
    """
    before = tf.cumsum(tf.exp(logits - normalisers[:, None]), axis=1, exclusive=True)  # of the likelier ids
    return tf.where(before < top_p, logits, MINUS_INFINITY)


def _gumbel(seeds, index, size):
    """Standard Gumbel noise; argmax(logits + noise) is a draw from the softmax of the logits. (B,) -> (B, size)"""

    def draw(seed):
        key = tf.stack([tf.cast(seed, tf.int64), tf.cast(index, tf.int64)])
        # Bits of a named generator: unlike its floats, these are the same eagerly, in a graph and under XLA
        # (tensorflow/tensorflow#121243).
        return tf.random.stateless_uniform([size], key, minval=None, maxval=None, dtype=tf.uint32, alg="philox")

    bits = tf.map_fn(draw, seeds, fn_output_signature=tf.TensorSpec([size], tf.uint32))
    uniform = (tf.cast(tf.bitwise.right_shift(bits, 9), tf.float32) + 0.5) * 2.0**-23  # never 0, never 1
    return -tf.math.log(-tf.math.log(uniform))
