"""Few shapes for all pairs: how the corpus is cut into buckets.

XLA compiles once per shape, so there are a few fixed shapes (rows, S, T). To make them, the pairs stand in line by the
length of their longer side, and the line is cut. With 28,000 captions, 4,096 tokens a batch and three buckets:

    longer side    5 ......... 16 | 16 ......... 25 | 25 ........ 51
    pairs             16,640      |      9,780      |     1,580         16,640 = 65 x 256
    shape          (256, 16, 16)  |  (163, 25, 25)  |  (79, 49, 51)     256 = 4,096 / 16
    batches             65        |       60        |      20

Where to cut is found by dynamic programming: the lengths that leave the least padding (13 % here with eight buckets).
A bucket whose pairs do not fill whole batches passes the longest of them on to the next one. So all batches are full
except the very last, which ends in empty rows.
"""

from typing import NamedTuple

import numpy as np

from keras_transformer.config import ConfigError


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


def stand_in_line(lengths) -> np.ndarray:
    """Orders the pairs by the length of their longer side, then of both, then by number. (2, pairs) -> (pairs,)"""
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
    """The longest length of each bucket, chosen for the fewest positions of all batches together, and its rows.

    cost[j] is the fewest positions for the j shortest lengths, if the last bucket ends there, and begin[j] the pairs
    that these batches hold: the rest is passed on. With one more bucket, for the lengths i..j-1, the cost is the least
    over i of cost[i] + (rows of its whole batches) x length[j-1]. Pairs that it passes on count too, as if they stayed,
    since passing on would otherwise be free; so the outcome is near the best, and need not be the best.
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
