import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.config import ConfigError
from keras_transformer.data.buckets import best_limits, cut, stand_in_line

LENGTHS = st.lists(st.tuples(st.integers(2, 30), st.integers(2, 30)), min_size=1, max_size=300)


def in_line(lengths):
    lengths = np.array(lengths, np.int32).T
    return lengths[:, stand_in_line(lengths)]


def positions(buckets):
    return sum(b.num_batches * b.shape.rows * (b.shape.source_length + b.shape.target_length) for b in buckets)


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, most=st.integers(1, 9), multiple=st.integers(1, 4), tokens=st.integers(120, 700))
def test_every_pair_has_one_place_that_it_fits_into(lengths, most, multiple, tokens):
    lengths = in_line(lengths)
    buckets = cut(lengths, tokens, multiple, most)
    assert 1 <= len(buckets) <= most
    assert [b.begin for b in buckets] == [0, *(b.end for b in buckets[:-1])]
    assert buckets[-1].end == lengths.shape[1]
    for begin, end, shape in ((b.begin, b.end, b.shape) for b in buckets):
        assert lengths[:, begin:end].max(axis=1).tolist() == [shape.source_length, shape.target_length]
        assert shape.rows * max(shape[1:]) <= tokens
        assert shape.rows % multiple == 0 < shape.rows


@settings(max_examples=100, deadline=None)
@given(lengths=LENGTHS, most=st.integers(1, 9), multiple=st.integers(1, 4), tokens=st.integers(120, 700))
def test_empty_rows_end_the_last_batch_only_and_are_fewer_than_its_batches_need(lengths, most, multiple, tokens):
    *others, last = cut(in_line(lengths), tokens, multiple, most)
    assert all((b.end - b.begin) % b.shape.rows == 0 for b in others)
    empty = last.num_batches * last.shape.rows - (last.end - last.begin)
    assert 0 <= empty < last.shape.rows
    assert empty < last.num_batches * multiple


def test_the_line_is_by_the_longer_side_then_by_both():
    lengths = np.array([[5, 3, 9, 2, 5], [4, 5, 1, 2, 5]], np.int32)
    assert stand_in_line(lengths).tolist() == [3, 1, 0, 4, 2]


def test_more_buckets_leave_less_padding():
    rng = np.random.default_rng(3)
    lengths = in_line(np.clip(rng.poisson(14, (5000, 2)) + 2, 2, 60))
    costs = [positions(cut(lengths, 4096, 1, most)) for most in (1, 2, 4, 8)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 2 / 3 * costs[0]


def test_as_many_buckets_as_lengths_leave_no_padding_but_of_the_rest():
    lengths = in_line([(4, 4)] * 50 + [(5, 5)] * 40 + [(10, 10)] * 10)
    buckets = cut(lengths, 20, 1, 3)
    assert [(b.shape, b.num_batches) for b in buckets] == [((5, 4, 4), 10), ((4, 5, 5), 10), ((2, 10, 10), 5)]


def test_a_bucket_passes_the_rest_on():
    buckets = cut(in_line([(4, 4)] * 53 + [(5, 5)] * 40), 20, 1, 2)
    assert [(b.shape, b.end) for b in buckets] == [((5, 4, 4), 50), ((4, 5, 5), 93)]


def test_the_last_batches_are_equally_full():
    (bucket,) = cut(in_line([(4, 4)] * 11), 40, 1, 1)  # 10 rows would do; 10 and 1 is 9 empty rows
    assert (bucket.shape, bucket.num_batches) == ((6, 4, 4), 2)


def test_the_limits_are_those_of_an_exhaustive_search_where_nothing_is_passed_on():
    rng = np.random.default_rng(5)
    longer = np.sort(rng.integers(2, 12, 400))
    limits, rows = best_limits(
        longer, tokens_per_batch=11, rows_multiple=1, most=2
    )  # lengths over 5 fill a batch alone
    assert limits[-1] == longer[-1]
    costs = {}
    for limit in np.unique(longer)[:-1]:
        first = int((longer <= limit).sum())
        first -= first % (11 // limit)
        costs[int(limit)] = first * limit + (len(longer) - first) * longer[-1]
    assert limits[0] == min(costs, key=costs.get)
    assert rows == [11 // limits[0], 1]


def test_a_budget_below_one_pair_for_each_replica_is_refused():
    with pytest.raises(ConfigError, match=r"at least 40, for 4 rows .* Received: tokens_per_batch=39"):
        cut(in_line([(3, 10)]), 39, 4, 8)
    assert cut(in_line([(3, 10)]), 40, 4, 8)[0].shape == (4, 3, 10)
