"""XLA where it pays."""

import itertools
import threading
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import compilation
from keras_transformer.compilation import WIDTHS, WhereItPays, padded_shape


def take(seconds, monkeypatch):
    """Lets every call take so long, by the clock that the module looks at before and after it."""
    clock = itertools.count(step=seconds)
    monkeypatch.setattr(compilation.time, "perf_counter", lambda: next(clock))


@pytest.mark.parametrize(
    "rows, width, expected",
    [(1, 1, (1, 8)), (3, 8, (4, 8)), (4, 9, (4, 16)), (33, 25, (64, 32)), (1, 512, (1, 512)), (2, 513, (2, 1024))],
)
def test_there_are_few_shapes(rows, width, expected):
    assert padded_shape(rows, width) == expected


def test_all_shapes_up_to_a_budget_are_a_few_dozen():
    shapes = {padded_shape(rows, width) for width in range(1, 257) for rows in range(1, 2048 // width + 1)}
    assert len(shapes) < 80 and {width for _, width in shapes} <= set(WIDTHS)


@pytest.mark.parametrize("xla", [True, False, None])
def test_the_results_are_those_of_the_function(xla, rng):
    function = WhereItPays(lambda ids, compiled: (tf.reduce_sum(ids, axis=1), ids * 2), xla)
    ids = rng.integers(1, 9, (5, 13)).astype(np.int32)
    sums, doubled = function(ids)
    np.testing.assert_array_equal(sums, ids.sum(axis=1))
    np.testing.assert_array_equal(doubled[:, :13], ids * 2)
    assert not doubled[:, 13:].any()


class Found(NamedTuple):
    sums: np.ndarray
    more: dict


@pytest.mark.parametrize("xla", [True, False])
def test_the_results_keep_their_tree(xla):
    function = WhereItPays(lambda ids, compiled: Found(tf.reduce_sum(ids, axis=1), {"a": (ids, ids + 1)}), xla)
    for _ in range(2):
        found = function(np.ones((3, 8), np.int32))
        assert type(found) is Found and found.sums.tolist() == [8] * 3
        assert [x.sum() for x in found.more["a"]] == [24, 48]
        assert {type(x) for x in (found.sums, *found.more["a"])} == {np.ndarray}


def test_ids_are_padded_up_to_the_longest_that_there_can_be_and_longer_ones_not_at_all():
    function = WhereItPays(lambda ids, compiled: ids, xla=True, longest=13)
    assert [function(np.ones((1, width), np.int32)).shape[1] for width in (8, 9, 13, 15)] == [8, 13, 13, 15]


def test_something_is_prepared_before_every_compiled_call_and_before_no_other(monkeypatch):
    events = []
    take(1.0, monkeypatch)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 2.0)
    function = WhereItPays(lambda ids, compiled: ids + 1, prepare=lambda: events.append("prepared"))
    for _ in range(5):
        function(np.ones((2, 9), np.int32))
        events.append("compiled" if function._compiled.experimental_get_tracing_count() else "not")
    assert events == ["not"] * 3 + ["prepared", "compiled"] * 2


def compiled(function, shape):
    """Whether a call is compiled."""
    before = function._spent.total()
    function(np.ones(shape, np.int32))
    return function._spent.total() == before


def compiled_after(function, shape, most=99, ahead=0):
    """The number of calls before the first that is compiled."""
    ids = np.ones(shape, np.int32)
    for number in range(most):
        function(ids, ahead)
        if function._compiled.experimental_get_tracing_count():
            return number
    return None


def test_a_shape_is_compiled_once_it_has_taken_as_long_as_that(monkeypatch):
    take(1.0, monkeypatch)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 5.0)
    function = WhereItPays(lambda ids, compiled: ids + 1)
    assert compiled_after(function, (3, 7)) == 1 + 5  # the first call is tracing, which does not count


def test_what_is_certain_to_come_counts(monkeypatch):
    take(1.0, monkeypatch)
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 5.0)
    function = WhereItPays(lambda ids, compiled: ids + 1)
    assert compiled_after(function, (3, 7), ahead=10) == 2


def test_what_compiling_took_decides_about_the_next_shape(monkeypatch):
    function = WhereItPays(lambda ids, compiled: ids + 1)
    take(1.0, monkeypatch)
    function._compile_seconds = 3.0
    assert compiled_after(function, (3, 7)) == 1 + 3 and function._compile_seconds == 1.0  # the clock says 1 s
    assert [compiled(function, (3, 15)) for _ in range(2)] == [False, True]  # the first call has taken 1 s
    function._compile_seconds = 40.0
    assert [compiled(function, (3, 31)) for _ in range(41)] == [False] * 40 + [True]


def test_a_shape_that_comes_seldom_is_never_compiled(monkeypatch):
    function = WhereItPays(lambda ids, compiled: ids + 1)
    take(0.001, monkeypatch)
    assert compiled_after(function, (3, 7), most=50) is None


# --- halves


@pytest.fixture
def halved(monkeypatch):
    monkeypatch.setattr(compilation, "HALVED", 16)


@pytest.mark.parametrize("rows", [1, 8, 9, 16, 17, 31, 32])
def test_halves_make_the_results_of_the_whole(halved, rng, rows):
    function = WhereItPays(
        lambda ids, compiled: Found(tf.reduce_sum(ids, axis=1), {"a": (ids, ids[:, None] * 2)}), True
    )
    ids = rng.integers(1, 9, (rows, 13)).astype(np.int32)
    for _ in range(2):  # compiling and compiled
        found = function(ids)
        np.testing.assert_array_equal(found.sums, ids.sum(axis=1))
        np.testing.assert_array_equal(found.more["a"][0][:, :13], ids)
        np.testing.assert_array_equal(found.more["a"][1][:, 0, :13], ids * 2)
    whole, _ = padded_shape(rows, 13)
    assert function._compiled_shapes == {(whole // 2 if whole >= 16 else whole, 16)}


def test_halves_run_at_the_same_time_once_their_shape_is_compiled(halved, monkeypatch):
    function, ids = WhereItPays(lambda ids, compiled: ids + 1, True), np.ones((20, 8), np.int32)
    function(ids)
    run, both = function._run, threading.Barrier(2, timeout=60)
    monkeypatch.setattr(function, "_run", lambda *arguments: (both.wait(), run(*arguments))[1])
    assert (function(ids) == 2).all()


@pytest.mark.parametrize("otherwise", [{"HALVED": None}, {"on_gpu": lambda: True}, {"_has_one_thread": lambda: True}])
def test_a_batch_stays_whole_where_halves_would_wait_in_turn(monkeypatch, otherwise):
    for name, value in {"HALVED": 16, **otherwise}.items():
        monkeypatch.setattr(compilation, name, value)
    function = WhereItPays(lambda ids, compiled: ids + 1, True)
    assert (function(np.ones((20, 8), np.int32)) == 2).all() and function._compiled_shapes == {(32, 8)}


def test_an_error_of_a_half_is_that_of_the_call(halved, monkeypatch):
    function = WhereItPays(lambda ids, compiled: ids + 1, True)
    function(np.ones((16, 8), np.int32))

    def fail(ids, *shape):
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError("no more")
        return ids

    monkeypatch.setattr(function, "_run", fail)
    with pytest.raises(MemoryError, match="no more"):
        function(np.ones((16, 8), np.int32))


def test_a_single_thread_of_tensorflow_is_seen(monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert not compilation._has_one_thread()
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    assert compilation._has_one_thread()
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS")
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 1)
    assert compilation._has_one_thread()
