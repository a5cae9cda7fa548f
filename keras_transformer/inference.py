"""Inference with a trained model, ids in and ids out: searching, sampling, scoring, aligning.

    search(model, source_ids, decode)                    -> Hypotheses           beam search, Section 6.1
    sample(model, source_ids, decode, seeds=...)         -> Hypotheses           one draw a sentence
    token_log_probs(model, source_ids, labels)           -> (B, T)               teacher forcing
    alignments(model, source_ids, labels)                -> AttentionMaps        all layers, all heads
    attention_to_source(model, source_ids, labels)       -> (B, T, S)            the mean of the upper layers

A model is a `Transformer` or an `Ensemble`, of which there are no `alignments`. The `Translator` and the exported
signatures use these functions and no others, so they cannot differ. All run eagerly, in a `tf.function` and under XLA,
unless `loop` says that only one of these is wanted. A row of nothing but padding is not a sentence: its hypothesis has
no ids and score 0.
"""

from functools import partial

import tensorflow as tf

from keras_transformer.decoding import (
    BeamSettings,
    Constraints,
    Room,
    SearchSettings,
    Steps,
    beam_search,
    generate,
    sampler,
)
from keras_transformer.fast.products_in_graph import GRAPH_FEW_ROWS
from keras_transformer.model_products import members, search_step
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID

IDS = {"pad_id": PAD_ID, "bos_id": BOS_ID, "eos_id": EOS_ID}
MAX_LOGITS = 2**26  # that `token_log_probs` holds at once, 256 MiB


def search(model, source_ids, decode, *, num_hypotheses=1, num_ids=None, prefix_ids=None, loop="any", panels=None):
    """The best translations by beam search, best first. -> Hypotheses

    Args:
        model: a `Transformer` or an `Ensemble`.
        source_ids: (B, S), every row ends with eos and is filled up with padding.
        decode: the `DecodeConfig`.
        num_hypotheses: W, how many are wanted; the beam is at least this wide.
        num_ids: of the target's tokenizer; the model may have more, for a rounder size, and these cannot come. None:
            all ids of the model can.
        prefix_ids: (B, P), what the translation has to begin with, without eos, filled up with padding; or None.
        loop: what runs the loop: "graph" for a graph without XLA, "xla" for a program that XLA compiles; "any" works
            everywhere.
        panels: the model's `KeptPanels`, so that an XLA program need not cut panels itself; or None.
    """
    width = max(decode.beam_width, num_hypotheses)
    settings = BeamSettings(
        **IDS,
        alpha=decode.alpha,
        no_repeat_ngram=_no_repeat_ngram(model, decode),
        beam_width=width,
        num_hypotheses=num_hypotheses,
    )
    constraints, max_length = _constraints(model, source_ids, decode, prefix_ids)
    steps = _steps(model, loop, num_ids, panels, _longest_given(source_ids, prefix_ids))
    cache = _start(model, source_ids, 0 if steps.room else max_length, width, loop)
    return beam_search(steps, model.reorder, cache, constraints, settings, max_length)


def sample(model, source_ids, decode, *, seeds, temperature=1.0, num_ids=None, loop="any"):
    """One translation a sentence, drawn from the model. -> Hypotheses

    Args:
        model: a `Transformer` or an `Ensemble`.
        source_ids: (B, S), every row ends with eos and is filled up with padding.
        decode: the `DecodeConfig`; its `top_k` and `top_p` limit the pieces that are drawn from.
        seeds: (B,) or a scalar, integers; a sentence and a seed determine the translation.
        temperature: (B,) or a scalar; 0 takes the likeliest piece.
        num_ids, loop: as in `search`.
    """
    settings = SearchSettings(**IDS, alpha=decode.alpha, no_repeat_ngram=_no_repeat_ngram(model, decode))
    constraints, max_length = _constraints(model, source_ids, decode)
    step, cache = _step(model, loop, num_ids), _start(model, source_ids, max_length, 1, loop)
    choose = sampler(seeds, temperature=temperature, top_k=decode.top_k, top_p=decode.top_p)
    return generate(step, cache, choose, constraints, settings, max_length)


def token_log_probs(model, source_ids, labels, *, num_ids=None):
    """log P of every target piece, 0 at padding. (B, S), (B, T) ending with eos -> (B, T) float32

    `num_ids` is as in `search`, so that both say the same of a translation. The logits of a batch may be larger than
    everything else together, so a few rows are scored at a time.
    """
    batch, length = tf.unstack(tf.shape(labels))
    most = tf.maximum(1, MAX_LOGITS // tf.maximum(1, length * model.vocab_size))
    num_slices = tf.maximum(1, -(-batch // most))  # one empty slice where there are no rows
    rows = -(-batch // num_slices)  # of each slice; XLA needs slices of equal size

    def sliced(ids):
        ids = tf.pad(ids, [[0, num_slices * rows - batch], [0, 0]], constant_values=PAD_ID)
        return tf.reshape(ids, (num_slices, rows, tf.shape(ids)[1]))

    slices = sliced(source_ids), sliced(labels)
    log_probs = tf.map_fn(
        lambda ids: _slice_log_probs(model, *ids, num_ids),
        slices,
        fn_output_signature=tf.float32,
        parallel_iterations=1,
    )
    return tf.reshape(log_probs, (num_slices * rows, length))[:batch]


def _slice_log_probs(model, source_ids, labels, num_ids):
    source_ids = not_empty(source_ids)  # rows that fill up the last slice
    logits = _first(num_ids, model((source_ids, shifted_right(labels)), training=False))  # (B, T, V)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))
    return tf.where(labels == PAD_ID, 0.0, -losses)


def alignments(model, source_ids, labels):
    """The attention weights when `labels` is written; row t is the step that writes piece t. -> AttentionMaps"""
    return model.attention_maps(not_empty(source_ids), shifted_right(labels))


def attention_to_source(model, source_ids, labels):
    """How much the step that writes each target piece attends to each source piece. (B, S), (B, T) -> (B, T, S)

    The mean of all heads in the upper half of the decoder's layers, and of all members of an ensemble. In a graph no
    logits are computed for it.
    """
    found = []
    for member in members(model):
        cross = alignments(member, source_ids, labels).cross  # (layers, B, H, T, S)
        found.append(tf.reduce_mean(cross[cross.shape[0] // 2 :], axis=(0, 2)))
    return tf.add_n(found) / len(found)


def shifted_right(labels):
    """Shifts `labels` right, behind bos: what the decoder reads when it writes them. (B, T) -> (B, T)

    Where a row has padding, its eos stands over the first of it. What the decoder writes there is not read.
    """
    return tf.pad(labels, [[0, 0], [1, 0]], constant_values=BOS_ID)[:, :-1]


def not_empty(ids):
    """A row of padding alone becomes an empty sentence, so that there is something to attend to. (B, S) -> (B, S)"""
    ids = tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]], constant_values=PAD_ID)
    is_empty = tf.reduce_all(ids == PAD_ID, axis=1, keepdims=True)  # (B, 1)
    return tf.where(is_empty & (tf.range(tf.shape(ids)[1]) == 0), EOS_ID, ids)


def longest_input(model, decode):
    """The most pieces of a source and of a prefix, end of sentence included."""
    return min(decode.max_input_length, longest_output(model, decode))


def longest_output(model, decode):
    """The most pieces of a translation, found or to be scored, end of sentence included."""
    return min(decode.max_input_length + decode.extra_length, model.position_limit)


def _no_repeat_ngram(model, decode):
    """`decode.no_repeat_ngram`, or 0 where it is longer than any output: then it would cost operations for nothing."""
    return decode.no_repeat_ngram if decode.no_repeat_ngram <= longest_output(model, decode) else 0


def _constraints(model, source_ids, decode, prefix_ids=None):
    """What each sentence may have, and the positions there must be room for. -> Constraints, T

    A sentence's limit is the length of its input, or of its prefix where that is longer, plus `extra_length`.
    """
    lengths = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)  # (B,)
    constraints, reach = Constraints(lengths), lengths
    if prefix_ids is not None:
        prefix_lengths = tf.math.count_nonzero(prefix_ids, axis=1, dtype=tf.int32)
        constraints = constraints._replace(prefix_ids=prefix_ids, prefix_lengths=prefix_lengths)
        reach = tf.maximum(lengths, prefix_lengths)
    if decode.min_length:
        constraints = constraints._replace(min_lengths=tf.fill(tf.shape(lengths), decode.min_length))
    max_length = tf.minimum(_longest_given(source_ids, prefix_ids) + decode.extra_length, longest_output(model, decode))
    return constraints._replace(max_lengths=tf.where(lengths == 0, 0, reach + decode.extra_length)), max_length


def _longest_given(source_ids, prefix_ids):
    """The most pieces that a source or a prefix may have, padding included."""
    width = _width(source_ids)
    return width if prefix_ids is None else tf.maximum(width, _width(prefix_ids))


def _width(ids):
    return tf.shape(ids)[1] if ids.shape[1] is None else ids.shape[1]


def _step(model, loop, num_ids, **options):
    """The step of a search, whose logits are those of the first `num_ids` ids. -> StepFn"""
    step = search_step(model, loop, **options)

    def step_of_ids(ids, index, cache):
        logits, cache = step(ids, index, cache)
        return _first(num_ids, logits), cache

    return step_of_ids


def _first(num_ids, logits):
    """The logits of the first `num_ids` ids. (..., V) -> (..., num_ids)"""
    return logits if num_ids in (None, logits.shape[-1]) else logits[..., :num_ids]


def _start(model, source_ids, max_length, beam_width, loop):
    """Encodes the sources and makes the cache that a search gets at index 0. -> Cache"""
    memory, memory_mask = model.encode(not_empty(source_ids))
    return model.start_cache(memory, memory_mask, max_length, beam_width=beam_width, loop=loop)


def _steps(model, loop, num_ids, panels, longest_given):
    """The step functions of a beam search, and what room they have. -> Steps"""
    many, few = (partial(_step, model, loop, num_ids, few=few, panels=panels) for few in (False, True))
    if loop == "graph":
        return Steps(many, few, GRAPH_FEW_ROWS, Room(model.grow), first_apart=True)
    if loop == "xla":
        return Steps(many, few, room=Room(model.grow, first_steps=longest_given * 3 // 2 + 8))  # most end by then
    return Steps(many, many)
