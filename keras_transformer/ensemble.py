"""Several models that translate as one: each piece gets the mean of the probabilities that they give it.

    log P(y_t | ...) = log( 1/n * sum over the members of softmax(logits of a member)[y_t] )

The softmax is over all ids of the member, also where a search may only write some of them.

An `Ensemble` takes the place of a `Transformer` wherever ids are searched, sampled or scored. What these pass on from
step to step, memory and cache, is a tuple of what the members have; nothing else knows that there are several.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import tensorflow as tf

from keras_transformer.model import Cache, Transformer


class EnsembleCache(NamedTuple):
    """What decoding keeps between steps. Axis 0 of everything is the batch."""

    of_members: tuple[Cache, ...]

    def as_kind(self, kind) -> Self:
        """The same caches, which `kind` writes and reads."""
        return type(self)(tuple(cache.as_kind(kind) for cache in self.of_members))


class Ensemble:
    """Models that translate together, by the mean of their probabilities; each has the same weight.

    They may differ in size, depth, norm, positions and all else but their vocabularies. An id must mean the same piece
    to all of them: `Translator.load` sees to that, others have to.

    >>> ensemble = Ensemble([model, other_model])
    >>> log_probs = ensemble((source_ids, target_ids))  # (B, S), (B, T) -> (B, T, V)
    >>> Translator(ensemble, tokenizers).translate(["Anna sleeps."])

    Args:
        members: the `Transformer`s, at least one.
    """

    def __init__(self, members: Iterable[Transformer]):
        given = tuple(members) if isinstance(members, Iterable) else ()
        if not given or not all(isinstance(member, Transformer) for member in given):
            raise TypeError(f"`members` must be a list of Transformers, at least one. Received: {members!r:.80}")
        self.members = given
        vocabularies = [(member.source_vocab_size, member.vocab_size) for member in self.members]
        if len(set(vocabularies)) > 1:
            raise ValueError(
                "The members of an ensemble must have equal vocabularies. "
                f"Received: (source_vocab_size, vocab_size) = {', '.join(map(str, vocabularies))}."
            )
        [(self.source_vocab_size, self.vocab_size)] = set(vocabularies)

    @property
    def position_limit(self) -> float:
        """The most positions that every member has."""
        return min(member.position_limit for member in self.members)

    @property
    def weights(self) -> list:
        """The weights of all members."""
        return [weight for member in self.members for weight in member.weights]

    def count_params(self) -> int:
        """How many numbers all members hold together."""
        return sum(member.count_params() for member in self.members)

    # --- what a Transformer does

    def __call__(self, inputs, training=False):
        """Teacher forcing. (source_ids (B, S), target_ids (B, T)) -> log-probabilities (B, T, V), float32"""
        return log_mean([member(inputs, training=training) for member in self.members])

    def encode(self, source_ids):
        """Encodes the source. (B, S) -> a memory (B, S, D) of each member, memory_mask (B, 1, S), which all share"""
        memories, (memory_mask, *_) = zip(*(member.encode(source_ids) for member in self.members), strict=True)
        return memories, memory_mask

    def start_cache(self, memory, memory_mask, max_length, **options):
        """The cache before the first step; the options are those of a `Transformer`. -> EnsembleCache"""
        pairs = zip(self.members, memory, strict=True)
        caches = (member.start_cache(own, memory_mask, max_length, **options) for member, own in pairs)
        return EnsembleCache(tuple(caches))

    def grow(self, cache, max_length):
        """The cache with room for `max_length` steps."""
        return EnsembleCache(tuple(member.grow(own, max_length) for member, own in self._with_caches(cache)))

    def step(self, ids, index, cache):
        """Decodes one position: the log-probabilities after `ids`, which stand at `index`.

        (B, W), scalar, EnsembleCache -> (B, W, V) float32, EnsembleCache
        """
        steps = [member.step(ids, index, own) for member, own in self._with_caches(cache)]
        logits, caches = zip(*steps, strict=True)
        return log_mean(logits), EnsembleCache(caches)

    def reorder(self, cache, parents):
        """The cache after beam w has become a continuation of beam parents[b, w]. EnsembleCache, (B, W)"""
        return EnsembleCache(tuple(member.reorder(own, parents) for member, own in self._with_caches(cache)))

    def attention_maps(self, source_ids, target_ids):
        """Refuses: members have layers and heads of their own, and what one attends to does not explain them all."""
        raise ValueError(
            "Attention maps must be asked of one model, as of `members[0]`. "
            f"Received: an ensemble of {len(self.members)} models."
        )

    def _with_caches(self, cache):
        return zip(self.members, cache.of_members, strict=True)


def log_mean(logits):
    """The logarithm of the mean of the probabilities that logits stand for. n x (..., V) -> (..., V) float32

    It is made of logarithms, because a probability below 1e-45 would become 0, and its logarithm minus infinity.
    """
    log_probs = [tf.nn.log_softmax(tf.cast(x, tf.float32)) for x in logits]
    return tf.reduce_logsumexp(tf.stack(log_probs), axis=0) - math.log(len(log_probs))
