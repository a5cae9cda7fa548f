"""Beam search with the length penalty of Wu et al. (2016), Section 7, as Section 6.1 of the paper uses it.

    score(Y) = log P(Y) / lp(Y)        lp(Y) = ((5 + |Y|) / 6) ^ alpha        |Y| counts eos

Each sentence has W live beams, all of the same length, and its best finished hypotheses. One step with W = 2:

    live     the cat   -1.1 --.  top 2W of all       the cat sat  -1.5   not eos: the best W become   the cat sat  -1.5
             a cat     -1.4 --'  continuations   ->  the cat </s> -1.9   live                         a cat is     -2.3
                                                     a cat is     -2.3
                                                     a cat </s>   -2.8   eos: scored and merged into the finished ones

At most W of 2W candidates can be eos (one a beam), so eos never takes the place of a live beam. One beam alone is
greedy search: then there is one candidate, and if that is eos the sentence is over. Candidates whose log P rounds to
the same number are a tie, which the lower beam and the lower id win; one beam alone chooses by its logits.

**Limit.** A sentence may have `max_lengths[b]` tokens, eos included. What is still live at the limit is incomplete. A
sentence that has a complete hypothesis returns complete ones only; where it has none, its live beams are returned as
they are, without eos, scored with lp(limit). The paper's authors do the same (tensor2tensor). If incomplete ones
competed, a model that repeats itself up to the limit would win by the length penalty.

**Early stopping** changes no result. log P is at most 0 and never rises as a beam grows, and lp does not fall with the
length (alpha >= 0). So whatever a live beam becomes, its score is at most log P(beam) / lp(limit). Once this bound, for
the best live beam, is not above the worst of the `num_hypotheses` finished ones, nothing can displace any of these (a
tie goes to the earlier one), and the sentence is done: it is frozen.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.decoding.constraints import NUM_FORBIDDEN, forbidden, forced, without_repeats
from keras_transformer.decoding.scoring import MINUS_INFINITY, Blocks, length_penalty, log_normaliser, top_k_of_rows
from keras_transformer.decoding.types import Hypotheses, SearchSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSettings(SearchSettings):
    beam_width: int
    num_hypotheses: int = 1  # how many are returned
    early_stopping: bool = True  # False: go on to each sentence's limit; the result is the same

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.num_hypotheses <= self.beam_width:
            raise ValueError(
                "`num_hypotheses` must be between 1 and `beam_width`. "
                f"Received: num_hypotheses={self.num_hypotheses}, beam_width={self.beam_width}."
            )


class Search(NamedTuple):
    """A search between two steps. Axis 0 of everything is the batch."""

    state: Any  # of the step function
    last_ids: tf.Tensor  # (B, W), what the live beams end with: bos at first, pad once the sentence is done
    live_ids: tf.Tensor  # (B, W, T)
    live_log_probs: tf.Tensor  # (B, W), best first; -inf: no such beam
    finished: Hypotheses  # complete hypotheses, whose eos is not yet written
    done: tf.Tensor  # (B,)


class Candidates(NamedTuple):
    """Continuations of live beams, best first."""

    log_probs: tf.Tensor  # (B, C)
    parents: tf.Tensor  # (B, C), beams
    ids: tf.Tensor  # (B, C)


def start(state, constraints, settings, max_length):
    """The search before step 0. -> Search"""
    batch = tf.shape(constraints.max_lengths)[0]
    width, kept = settings.beam_width, settings.num_hypotheses
    only_the_first = tf.where(tf.range(width) == 0, 0.0, MINUS_INFINITY)  # otherwise all beams would be equal
    nothing = tf.fill((batch, kept), MINUS_INFINITY)
    return Search(
        state=state,
        last_ids=tf.fill((batch, width), settings.bos_id),
        live_ids=tf.fill((batch, width, max_length), settings.pad_id),
        live_log_probs=tf.tile(only_the_first[None], (batch, 1)),
        finished=Hypotheses(
            ids=tf.fill((batch, kept, max_length), settings.pad_id),
            scores=nothing,
            log_probs=nothing,
            lengths=tf.zeros((batch, kept), tf.int32),
        ),
        done=constraints.max_lengths <= 0,
    )


def advance(step, index, search, constraints, *, reorder, settings):
    """One step of the search. -> index, Search"""
    logits, state = step(search.last_ids, index, search.state)
    candidates = _candidates(logits, index, search, constraints, settings)
    finished = _finish(index, search, candidates, settings)
    last_ids, live_ids, live_log_probs, parents = _go_on(index, search, candidates, settings)
    after = Search(reorder(state, parents), last_ids, live_ids, live_log_probs, finished, search.done)
    return index + 1, after._replace(done=search.done | _is_done(index + 1, after, constraints, settings))


def best(search, constraints, settings):
    """The finished hypotheses of each sentence; where there are none, its live beams. -> Hypotheses"""
    finished, limits = search.finished, constraints.max_lengths[:, None]
    positions = tf.range(tf.shape(finished.ids)[2])  # (T,)
    log_probs = search.live_log_probs[:, : settings.num_hypotheses]
    incomplete = Hypotheses(
        ids=search.live_ids[:, : settings.num_hypotheses],
        scores=log_probs / length_penalty(limits, settings.alpha),
        log_probs=log_probs,
        lengths=limits + tf.zeros_like(finished.lengths),
    )
    with_eos = tf.where(positions == finished.lengths[:, :, None] - 1, settings.eos_id, finished.ids)
    any_complete = finished.scores[:, :1] > MINUS_INFINITY  # (B, 1)
    ids = tf.where(any_complete[:, :, None], with_eos, incomplete.ids)
    scores, log_probs, lengths = (
        tf.where(any_complete, a, b) for a, b in zip(finished[1:], incomplete[1:], strict=True)
    )
    exists = scores > MINUS_INFINITY
    return Hypotheses(
        tf.where(exists[:, :, None], ids, settings.pad_id), scores, log_probs, tf.where(exists, lengths, 0)
    )


def _candidates(logits, index, search, constraints, settings):
    """The best 2W continuations of all live beams. (B, W, V) -> Candidates"""
    width, vocab_size = logits.shape[1:]
    wanted = 2 * width if width > 1 else 1
    num_best = min(wanted + NUM_FORBIDDEN * width, width * vocab_size)  # K
    logits = tf.cast(logits, tf.float32)
    rows = Blocks.of(logits)
    normalisers = log_normaliser(rows)  # (B, W), over all ids, also forbidden ones
    # A beam whose distribution is broken (NaN, or no id possible) ends here.
    goes_on = tf.math.is_finite(normalisers) & ~search.done[:, None]
    before = tf.where(goes_on, search.live_log_probs, MINUS_INFINITY)  # (B, W)
    normalisers = tf.where(goes_on, normalisers, 0.0)  # so that infinity - infinity makes no NaN

    def log_probs_of(values, before, normalisers):
        # The minimum, because rounding must not raise log P: early stopping relies on that.
        return before + tf.minimum(values - normalisers, 0.0)

    if settings.no_repeat_ngram:
        unrepeated = without_repeats(_flat(logits), _flat(search.live_ids), index, settings)  # (B * W, V)
        rows = Blocks.of(tf.reshape(unrepeated, (-1, width, vocab_size)))
    if width > 1:
        log_probs, parents, ids = top_k_of_rows(rows, num_best, log_probs_of, (before, normalisers))  # (B, K)
    else:
        values, parents, ids = top_k_of_rows(rows, num_best)
        log_probs = tf.where(goes_on, log_probs_of(values, before, normalisers), MINUS_INFINITY)
    log_probs = tf.where(forbidden(ids, index, constraints, settings), MINUS_INFINITY, log_probs)
    if constraints.prefix_ids is not None:
        forced_ids, is_forced = forced(constraints, index)  # (B,); one candidate a beam
        values = tf.gather(logits, forced_ids, axis=2, batch_dims=1)  # (B, W)
        forced_log_probs = tf.where(goes_on, log_probs_of(values, before, normalisers), MINUS_INFINITY)
        padding, is_forced = [[0, 0], [0, num_best - width]], is_forced[:, None]
        log_probs = tf.where(is_forced, tf.pad(forced_log_probs, padding, constant_values=MINUS_INFINITY), log_probs)
        parents = tf.where(is_forced, tf.pad(tf.range(width)[None], padding), parents)
        ids = tf.where(is_forced, forced_ids[:, None], ids)
    log_probs, places = tf.math.top_k(log_probs, min(wanted, num_best))  # (B, C)
    return Candidates(log_probs, *(tf.gather(x, places, batch_dims=1) for x in (parents, ids)))


def _flat(x):
    """(B, W, N) -> (B * W, N)"""
    return tf.reshape(x, (-1, x.shape[2] or tf.shape(x)[2]))


def _finish(index, search, candidates, settings):
    """Merges the candidates that end into the finished hypotheses. -> Hypotheses"""
    finished, kept = search.finished, settings.num_hypotheses
    ending = tf.where(candidates.ids == settings.eos_id, candidates.log_probs, MINUS_INFINITY)  # (B, C)
    scores = tf.concat([finished.scores, ending / length_penalty(index + 1, settings.alpha)], axis=1)  # (B, kept + C)
    scores, places = tf.math.top_k(scores, kept)  # an earlier one wins a tie

    def choose(old, new):
        return tf.gather(tf.concat([old, new], axis=1), places, batch_dims=1)

    before = tf.tile(tf.range(kept)[None], (tf.shape(places)[0], 1))
    rows = choose(before, kept + candidates.parents)  # (B, kept), in finished and live ids, one above the other
    return Hypotheses(
        ids=tf.gather(tf.concat([finished.ids, search.live_ids], axis=1), rows, batch_dims=1),
        scores=scores,
        log_probs=choose(finished.log_probs, ending),
        lengths=choose(finished.lengths, tf.zeros_like(candidates.ids) + index + 1),
    )


def _go_on(index, search, candidates, settings):
    """The best W candidates that do not end become the live beams; those of a sentence that is done stay.

    -> last_ids, live_ids, live_log_probs, parents
    """
    width = settings.beam_width
    log_probs = tf.where(candidates.ids == settings.eos_id, MINUS_INFINITY, candidates.log_probs)
    log_probs, places = tf.math.top_k(log_probs, width)  # (B, W)
    done = search.done[:, None]
    parents = tf.where(done, tf.range(width), tf.gather(candidates.parents, places, batch_dims=1))
    ids = tf.where(done, settings.pad_id, tf.gather(candidates.ids, places, batch_dims=1))
    live_ids = tf.gather(search.live_ids, parents, batch_dims=1)
    here = tf.range(tf.shape(live_ids)[2]) == index  # (T,)
    live_ids = tf.where(here & ~done[:, :, None], ids[:, :, None], live_ids)
    return ids, live_ids, tf.where(done, search.live_log_probs, log_probs), parents


def _is_done(length, search, constraints, settings):
    """Whether a sentence is done: its limit is reached, or no live beam can still win. -> (B,)"""
    best_live = tf.reduce_max(search.live_log_probs, axis=1)
    worst_kept = search.finished.scores[:, -1] if settings.early_stopping else MINUS_INFINITY
    best_possible = best_live / length_penalty(constraints.max_lengths, settings.alpha)
    return (length >= constraints.max_lengths) | (best_possible <= worst_kept)
