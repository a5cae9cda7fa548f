"""The batch plan: which pairs make batch k of a run, a pure function of (seed, k).

The pairs lie in a few buckets, each with one fixed shape (data/buckets.py), and every bucket is cut into batches. Epoch
e has its own order, from (seed, e) alone: the pairs are mixed within each bucket, then the batches. It holds every pair
exactly once; where the pairs do not fill whole batches, the last one ends in empty rows.
"""

from itertools import count
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.buckets import cut, stand_in_line
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.prefetch import prefetched
from keras_transformer.tokenizer import BOS_ID, PAD_ID

WIDE_ENOUGH = 0.6  # the share of sentences whose first random cut fits the widened shape of their stored pieces
ATTEMPTS = 3  # to cut a pair at random so that it fits its batch


class Inputs(NamedTuple):
    """What the model reads. An empty row, at the end of a batch that is not full, is all padding."""

    source_ids: np.ndarray  # (B, S) int32: x1 ... xm </s>
    target_ids: np.ndarray  # (B, T) int32: <s> y1 ... yn, the labels shifted right


class Batch(NamedTuple):
    inputs: Inputs
    labels: np.ndarray  # (B, T) int32: y1 ... yn </s>
    weights: np.ndarray  # (B, T) float32: 1 on labels, 0 on padding


def _ids():
    return tf.TensorSpec((None, None), tf.int32)


ELEMENT_SPEC = Batch(Inputs(_ids(), _ids()), _ids(), tf.TensorSpec((None, None), tf.float32))


class Epoch(NamedTuple):
    number: int
    line: np.ndarray  # all pairs, bucket by bucket, mixed within each
    order: np.ndarray  # for each batch, its place in the plan


class BatchPlan:
    """The batches of a run.

    Args:
        corpus: The stored pairs.
        tokens_per_batch: The most positions of a side, padding included.
        rows_multiple: The rows of every batch are divisible by it: replicas x micro-batches.
        buckets: The most shapes.
        seed: Of the order.
        shuffle: False leaves the pairs in line, the same in every epoch.
        subword_sampling: Cut the text of every batch anew and at random (see `Tokenizer.sample`), by (seed, k). The
            corpus must know its tokenizers. Shapes are made wider by what this adds to most sentences; a pair that does
            not fit is cut anew, and one that never does stays as it is stored. It costs padding, and Python's time.
        max_length: No shape is made wider than that by subword sampling; None for any width.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        tokens_per_batch: int,
        rows_multiple: int = 1,
        buckets: int = 8,
        seed: int = 0,
        shuffle: bool = True,
        subword_sampling: float = 0.0,
        max_length: int | None = None,
    ):
        self.corpus, self.seed, self.shuffle = corpus, seed, shuffle
        self.tokens_per_batch, self.rows_multiple = tokens_per_batch, rows_multiple
        self.subword_sampling = subword_sampling
        stored = np.stack([corpus.source_lengths, corpus.target_lengths])  # (2, pairs)
        mean, wider = growth(corpus, subword_sampling) if subword_sampling else np.ones((2, 2))
        lengths = np.ceil(stored * wider[:, None]).astype(np.int32)
        if max_length is not None:
            lengths = np.maximum(np.minimum(lengths, max_length), stored)
        self._line = stand_in_line(lengths)
        self._buckets = cut(lengths[:, self._line], tokens_per_batch, rows_multiple, buckets)
        self._places = [(b, i) for b in self._buckets for i in range(b.num_batches)]  # of each batch: bucket, number
        self._epoch = None
        self.shapes = tuple(bucket.shape for bucket in self._buckets)
        self.batches_per_epoch = len(self._places)
        positions = sum(np.array(b.shape[1:]) * b.shape.rows * b.num_batches for b in self._buckets)
        num_tokens = stored.sum(axis=1) * mean
        self.num_tokens = tuple(map(round, num_tokens.tolist()))  # source, target; an estimate with subword sampling
        self.padding = tuple((1.0 - num_tokens / positions).tolist())  # share of the positions, source and target

    def state(self) -> dict:
        """What the batches depend on beside the configuration and the text, for a checkpoint."""
        return {"rows_multiple": self.rows_multiple}

    def batch(self, k: int) -> Batch:
        """Batch `k` of the run; numbers go on from epoch to epoch."""
        epoch = self._mixed(k // self.batches_per_epoch)
        (shape, begin, end), number = self._places[epoch.order[k % self.batches_per_epoch]]
        begin += number * shape.rows
        rows = epoch.line[begin : min(begin + shape.rows, end)]
        source_ids = self.corpus.source.padded(rows, shape.source_length)
        labels = self.corpus.target.padded(rows, shape.target_length)
        if self.subword_sampling:
            self._resample(k, rows, source_ids, labels)
        empty = ((0, shape.rows - len(rows)), (0, 0))
        return shifted(np.pad(source_ids, empty), np.pad(labels, empty))

    def _mixed(self, number: int) -> Epoch:
        """The order of one epoch, which is kept until another is asked for."""
        epoch = self._epoch
        if epoch is None or epoch.number != number:
            epoch = self._epoch = self._mix(number)
        return epoch

    def _mix(self, number: int) -> Epoch:
        if not self.shuffle:
            return Epoch(number, self._line, np.arange(self.batches_per_epoch))
        # NumPy promises never to change the raw numbers of a bit generator, but not those of `Generator.permutation`.
        random = np.random.PCG64([self.seed, number]).random_raw
        keys = random(len(self._line))
        parts = [self._line[b.begin : b.end][np.argsort(keys[b.begin : b.end])] for b in self._buckets]
        return Epoch(number, np.concatenate(parts), np.argsort(random(self.batches_per_epoch)))

    def _resample(self, k: int, rows, *sides):
        """Cuts the pairs `rows` anew, and writes the new ids over those in `sides`."""
        left = np.arange(len(rows))
        for seeds in np.random.SeedSequence([self.seed, k]).generate_state(2 * ATTEMPTS).reshape(-1, 2).tolist():
            sampled = list(zip(*self.corpus.sample(rows[left], self.subword_sampling, seeds), strict=True))
            fits = [
                all(1 < len(ids) <= side.shape[1] for side, ids in zip(sides, pair, strict=True)) for pair in sampled
            ]
            for index, pair, fit in zip(left, sampled, fits, strict=True):
                for side, ids in zip(sides, pair if fit else (), strict=fit):
                    side[index, : len(ids)], side[index, len(ids) :] = ids, PAD_ID
            left = left[~np.array(fits, bool)]
            if not len(left):
                break

    def dataset(self, start: int = 0) -> tf.data.Dataset:
        """Batches `start`, `start` + 1 and so on without end, made ahead of time in another thread."""
        return prefetched(lambda: map(self.batch, count(start)), ELEMENT_SPEC)

    def epoch_dataset(self, epoch: int = 0) -> tf.data.Dataset:
        """The batches of one epoch."""
        begin = epoch * self.batches_per_epoch
        return prefetched(lambda: map(self.batch, range(begin, begin + self.batches_per_epoch)), ELEMENT_SPEC)

    def describe(self) -> str:
        shapes = ", ".join(f"{rows} x ({s}, {t})" for rows, s, t in self.shapes)
        source, target = self.padding
        mean = self.num_tokens[1] / self.batches_per_epoch
        return (
            f"{len(self.corpus):,} pairs make {self.batches_per_epoch:,} batches per epoch, with {mean:,.0f} target "
            f"tokens on average and at most {self.tokens_per_batch:,} positions a side. "
            f"Padding: source {source:.1%}, target {target:.1%}. Shapes: {shapes}."
        )


def shifted(source_ids, labels) -> Batch:
    """Makes a batch of ids: what the decoder reads is the labels, shifted right behind a begin of sentence.

    (B, S), (B, T) -> Batch. With bos 2, eos 3 and pad 0:

        labels        5 6 3 0
        target_ids    2 5 6 0
        weights       1 1 1 0

    Arrays or lists give arrays; tensors, as in the graph of a `tf.data` pipeline, give tensors, and ragged ones are
    filled up with padding.
    """
    if tf.is_tensor(source_ids) or tf.is_tensor(labels):
        source_ids, labels = (_dense(ids) for ids in (source_ids, labels))
        _check_rows(source_ids, labels)
        target_ids = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS_ID)
        is_label = labels != PAD_ID
        return Batch(Inputs(source_ids, tf.where(is_label, target_ids, PAD_ID)), labels, tf.cast(is_label, tf.float32))
    source_ids, labels = np.asarray(source_ids), np.asarray(labels)
    _check_rows(source_ids, labels)
    is_label = labels != PAD_ID
    target_ids = np.zeros_like(labels)
    target_ids[:, 1:] = labels[:, :-1]
    target_ids[:, 0] = BOS_ID
    return Batch(Inputs(source_ids, np.where(is_label, target_ids, PAD_ID)), labels, is_label.astype(np.float32))


def _dense(ids):
    return ids.to_tensor() if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)


def _check_rows(source_ids, labels):
    shapes = tf.TensorShape(source_ids.shape), tf.TensorShape(labels.shape)
    if not (all(shape.rank in (2, None) for shape in shapes) and shapes[0][:1].is_compatible_with(shapes[1][:1])):
        raise ValueError(f"Expected ids (B, S) and labels (B, T). Received: {' and '.join(map(str, shapes))}.")


def growth(corpus: Corpus, amount: float) -> np.ndarray:
    """How many times longer subword sampling makes the sentences: the mean, as far as they fit, and the factor by which
    the shapes have to be wider. -> (2, sides)"""
    rows = np.unique(np.linspace(0, len(corpus) - 1, num=1000, dtype=np.int64))
    factors = [
        np.array(list(map(len, sampled))) / np.diff(column.offsets)[rows]
        for column, sampled in zip((corpus.source, corpus.target), corpus.sample(rows, amount, (0, 1)), strict=True)
    ]
    wider = np.maximum(np.quantile(factors, WIDE_ENOUGH, axis=1), 1.0)  # the stored pieces have to fit in any case
    return np.array([np.mean(np.minimum(factors, wider[:, None]), axis=1), wider])
