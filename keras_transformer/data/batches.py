"""The batch plan: which pairs make batch k of a run, a pure function of (seed, k).

XLA compiles once per shape, so there are a few fixed shapes (rows, S, T). To make them, the pairs stand in line by the
length of their longer side, and the line is cut. With 4,096 tokens a batch and three buckets, for example:

    longer side    3 ......... 17 | 18 ......... 27 | 28 ........ 51
    pairs              16,870     |      9,816      |     2,314         16,870 = 70 x 241
    shape          (241, 17, 17)  |  (151, 27, 27)  |  (80, 49, 51)     241 = 4,096 / 17
    batches              70       |        65       |       29

Where to cut is found by dynamic programming: the lengths that leave the least padding. A bucket that does not come out
at whole batches passes its longest pairs on to the next one, so that all batches are full but for the very last, which
ends in empty rows. So an epoch holds every pair exactly once.

Epoch e has its own order, from (seed, e) alone: the pairs are mixed within each bucket, then the batches.
"""

from itertools import count
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.config import ConfigError
from keras_transformer.data.corpus import Corpus
from keras_transformer.data.prefetch import prefetched
from keras_transformer.tokenizer import BOS_ID, PAD_ID


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


class Shape(NamedTuple):
    rows: int
    source_length: int
    target_length: int


class Bucket(NamedTuple):
    """The pairs `line[begin:end]`, in batches of one shape."""

    shape: Shape
    begin: int
    end: int

    @property
    def num_batches(self) -> int:
        return ceil_divide(self.end - self.begin, self.shape.rows)


class Epoch(NamedTuple):
    number: int
    line: np.ndarray  # all pairs, bucket by bucket, mixed within each
    order: np.ndarray  # the place in the plan of each batch


class BatchPlan:
    """The batches of a run.

    Args:
        corpus: The stored pairs.
        tokens_per_batch: The most positions of a side, padding included.
        rows_multiple: The rows of every batch are divisible by it: replicas x micro-batches.
        buckets: The most shapes.
        seed: Of the order.
        shuffle: False leaves the pairs in line, the same in every epoch.
        subword_sampling: Cut the text of every batch anew and at random (see `Tokenizer.sample_encode`), by (seed, k).
            The corpus must have kept its text and know its tokenizers. A cut that does not fit into the shape gives
            way to the stored one. It costs time, since one thread tokenises, and repeats exactly only with the same
            release of SentencePiece.
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
    ):
        self.corpus, self.seed, self.shuffle = corpus, seed, shuffle
        self.tokens_per_batch = tokens_per_batch
        self.subword_sampling = subword_sampling
        lengths = np.stack([corpus.source_lengths, corpus.target_lengths])  # (2, pairs)
        self._line = stand_in_line(lengths)
        self._buckets = cut(lengths[:, self._line], tokens_per_batch, rows_multiple, buckets)
        self._places = [(b, i) for b in self._buckets for i in range(b.num_batches)]  # of each batch: bucket, number
        self._epoch = None
        self.shapes = tuple(bucket.shape for bucket in self._buckets)
        self.batches_per_epoch = len(self._places)
        positions = sum(np.array(b.shape[1:]) * b.shape.rows * b.num_batches for b in self._buckets)
        self.num_tokens = tuple(map(int, lengths.sum(axis=1)))  # source, target
        self.padding = tuple(map(float, 1.0 - lengths.sum(axis=1) / positions))  # share of the positions, by side

    def batch(self, k: int) -> Batch:
        """Batch number `k` of the run, which counts on over the epochs."""
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
        # NumPy promises the raw numbers of a bit generator for ever, those of `Generator.permutation` it does not.
        random = np.random.PCG64([self.seed, number]).random_raw
        keys = random(len(self._line))
        parts = [self._line[b.begin : b.end][np.argsort(keys[b.begin : b.end])] for b in self._buckets]
        return Epoch(number, np.concatenate(parts), np.argsort(random(self.batches_per_epoch)))

    def _resample(self, k: int, rows, *sides):
        seeds = np.random.SeedSequence([self.seed, k]).generate_state(2).tolist()
        for side, sampled in zip(sides, self.corpus.sample(rows, self.subword_sampling, seeds), strict=True):
            for row, ids in zip(side, sampled, strict=True):
                if 1 < len(ids) <= len(row):
                    row[: len(ids)], row[len(ids) :] = ids, PAD_ID

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
            f"{len(self.corpus):,} pairs make {self.batches_per_epoch:,} batches an epoch of {mean:,.0f} target tokens "
            f"on average, at most {self.tokens_per_batch:,} positions a side. "
            f"Padding: source {source:.1%}, target {target:.1%}. Shapes: {shapes}."
        )


def shifted(source_ids, labels) -> Batch:
    """The labels become the decoder's input behind a begin of sentence."""
    is_label = labels != PAD_ID
    target_ids = np.zeros_like(labels)
    target_ids[:, 1:] = labels[:, :-1]
    target_ids[:, 0] = BOS_ID
    return Batch(Inputs(source_ids, np.where(is_label, target_ids, PAD_ID)), labels, is_label.astype(np.float32))


# --- Buckets ------------------------------------------------------------------------------------------------------


def stand_in_line(lengths) -> np.ndarray:
    """The pairs by their longer side, those alike by their sum, then by number. (2, pairs) -> (pairs,)"""
    longer, total = lengths.max(axis=0).astype(np.int64), lengths.sum(axis=0)
    return np.argsort(longer * (2 * longer.max() + 1) + total, kind="stable").astype(np.int32)


def cut(lengths, tokens_per_batch: int, rows_multiple: int, most: int) -> list[Bucket]:
    """The buckets of pairs that stand in line. (2, pairs) -> at most `most` buckets, shortest first"""
    longer = lengths.max(axis=0)
    if rows_multiple * longer[-1] > tokens_per_batch:
        raise ConfigError(
            f"`tokens_per_batch` must be at least {rows_multiple * longer[-1]:,}, for {rows_multiple} rows (replicas x "
            f"accumulation) of the longest pair, {longer[-1]} pieces. Received: tokens_per_batch={tokens_per_batch}. "
            "Raise it, or lower `data.max_length`."
        )
    buckets, begin = [], 0
    limits, rows = best_limits(longer, tokens_per_batch, rows_multiple, most)
    for limit, most_rows in zip(limits, rows, strict=True):
        num_pairs = int(np.searchsorted(longer, limit, side="right")) - begin
        if limit < limits[-1]:
            num_pairs -= num_pairs % most_rows
        if num_pairs:
            num_batches = ceil_divide(num_pairs, most_rows)
            even_rows = ceil_divide(num_pairs, num_batches * rows_multiple) * rows_multiple
            sides = lengths[:, begin : begin + num_pairs].max(axis=1)
            buckets.append(Bucket(Shape(even_rows, *map(int, sides)), begin, begin + num_pairs))
        begin += num_pairs
    return buckets


def best_limits(longer, tokens_per_batch: int, rows_multiple: int, most: int) -> tuple[list[int], list[int]]:
    """The longest length of each bucket, so that all batches together have the fewest positions, and the rows for it.

    cost[j] is the fewest positions for the j shortest lengths, if the last bucket ends there, and begin[j] the pairs
    that these batches hold: the rest is passed on. With one more bucket, for the lengths i..j-1, the cost is the least
    over i of cost[i] + (rows of its whole batches) x length[j-1]. What it passes on counts too, as if it stayed, or
    else passing on would be free; so the outcome is near the best, and need not be the best.
    """
    values, counts = np.unique(longer, return_counts=True)
    rows = tokens_per_batch // values // rows_multiple * rows_multiple
    before, num_lengths = np.concatenate([[0], np.cumsum(counts)]), len(values)  # before[j]: pairs of the j shortest
    cost, begin = np.where(before == 0, 0.0, np.inf), np.zeros_like(before)
    firsts, costs = [], []  # for each number of buckets, for each j: i
    for _ in range(min(most, num_lengths)):
        steps = [(0, np.inf, 0)]
        for j in range(1, num_lengths + 1):
            num_pairs = before[j] - begin[:j]
            whole = num_pairs if j == num_lengths else num_pairs - num_pairs % rows[j - 1]
            total = cost[:j] + whole * values[j - 1]
            i = int(np.argmin(total + (num_pairs - whole) * values[j - 1]))
            steps.append((i, total[i], begin[i] + whole[i]))
        first, cost, begin = map(np.array, zip(*steps, strict=True))
        firsts.append(first)
        costs.append(cost[-1])
    chosen, j = [], num_lengths
    for first in reversed(firsts[: int(np.argmin(costs)) + 1]):
        chosen.append(j - 1)
        j = first[j]
    return values[chosen[::-1]].tolist(), rows[chosen[::-1]].tolist()


def ceil_divide(number: int, divisor: int) -> int:
    return -(-number // divisor)
