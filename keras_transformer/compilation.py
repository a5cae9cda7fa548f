"""Compiles a search by XLA, for the shapes for which that pays.

XLA makes a search up to three times as fast, but compiles every shape of its input anew, which takes seconds. So inputs
are padded to a few shapes. A shape is compiled once the time that it has taken without XLA, and will certainly take
yet, is more than the last compilation took. So a single sentence is translated at once, a large file mostly by compiled
programs, and where sentences come now and then, the shapes that keep coming back are compiled in the end.

    ids (61, 21)  --as a graph, until (64, 24) has taken as long as compiling; then padded-->  compiled (64, 24)

A program divides its products among all cores and makes the small operations between them by one. So many sentences go
through it as two halves, at the same time: while one half waits, the other computes.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import tensorflow as tf

from keras_transformer.fast.xla import on_gpu
from keras_transformer.processor import CORES

COMPILE_SECONDS = 7.0  # what compiling a shape takes, about, until one has been compiled
HALVED = 16 if CORES > 1 else None  # rows from which on there are halves
WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def padded_shape(rows: int, width: int) -> tuple[int, int]:
    """The smallest of the padded shapes that has room for `rows` rows and `width` columns."""
    last = WIDTHS[-1]
    return 1 << (rows - 1).bit_length(), next((w for w in WIDTHS if w >= width), -(-width // last) * last)


class WhereItPays:
    """A function of ids (B, S) that XLA compiles for the shapes for which that pays.

    Args:
        function: Takes an int32 tensor (B, S) and a bool, whether XLA compiles it. Rows and columns of zeros must make
            no difference to it. Its results are a tree of tensors whose axis 0 is the batch.
        xla: False never compiles, True always does, None where it pays.
        longest: Ids are padded to no more columns than this; None for any number.
        prepare: Called before every batch that goes through a compiled program, to renew what that reads from outside.
    """

    def __init__(
        self,
        function: Callable,
        xla: bool | None = None,
        longest: int | None = None,
        prepare: Callable = lambda: None,
    ):
        def traced(compiled):
            return tf.function(
                lambda ids: function(ids, compiled),
                input_signature=[tf.TensorSpec((None, None), tf.int32)],
                autograph=False,
                jit_compile=compiled,
            )

        self._xla, self._longest, self._prepare = xla, longest, prepare
        self._graph, self._compiled = traced(False), traced(True)
        self._spent = Counter()  # seconds without XLA, by padded shape
        self._worth_compiling = set()  # padded shapes
        self._compiled_shapes, self._compile_seconds = set(), COMPILE_SECONDS

    @cached_property
    def _program(self):
        """The compiled program: ids, how many rows are wanted -> the results of these.

        Calls the trace directly: a `tf.function` would look for it, check arguments and wrap the results, which takes
        as long as a step of a small model's search.
        """
        traced = self._compiled.get_concrete_function()
        call, captured, packed = traced.inference_fn.call_flat, traced.captured_inputs, traced.function_type.pack_output
        return lambda ids, rows: packed([x.numpy()[:rows] for x in call(ids, *captured)])

    def __call__(self, ids: np.ndarray, ahead: int = 0):
        """The results as arrays; `ahead` is how many more calls of this padded shape are certain to come."""
        shape = padded_shape(*ids.shape)
        if self._xla or shape in self._worth_compiling:
            return self._by_xla(ids, *shape)
        is_first, began = not self._graph.experimental_get_tracing_count(), time.perf_counter()
        results = tf.nest.map_structure(lambda x: x.numpy(), self._graph(ids))
        seconds = time.perf_counter() - began
        if not is_first:  # then most of the time was tracing
            self._spent[shape] += seconds
            if self._xla is None and self._spent[shape] + ahead * seconds >= self._compile_seconds:
                self._worth_compiling.add(shape)
        return results

    def _by_xla(self, ids, rows, width):
        width = max(ids.shape[1], min(width, self._longest or width))
        self._prepare()
        if not HALVED or rows < HALVED or _has_one_thread() or on_gpu():
            return self._run(ids, rows, width)
        one, other = ids[0::2], ids[1::2]  # sorted by length, they are halves of the work too
        if (rows // 2, width) in self._compiled_shapes:
            running = self._second_thread.submit(self._run, other, rows // 2, width)
            found = self._run(one, rows // 2, width), running.result()
        else:
            found = self._run(one, rows // 2, width), self._run(other, rows // 2, width)
        return tf.nest.map_structure(_in_turn, *found)

    @cached_property
    def _second_thread(self):
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="second half of a batch")

    def _run(self, ids, rows, width):
        padded = np.zeros((rows, width), np.int32)
        padded[: ids.shape[0], : ids.shape[1]] = ids
        program, began = self._program, time.perf_counter()
        results = program(tf.constant(padded), len(ids))
        if padded.shape not in self._compiled_shapes:
            self._compiled_shapes.add(padded.shape)
            self._compile_seconds = time.perf_counter() - began
        return results


def _has_one_thread():
    """Whether TensorFlow has one thread for all programs, for which two halves would wait in turn."""
    threads = tf.config.threading.get_intra_op_parallelism_threads()  # 0: nobody has said
    return threads == 1 or os.environ.get("TF_NUM_INTRAOP_THREADS") == "1"


def _in_turn(one, other):
    """The rows of two arrays in turn: those of the first are the even ones."""
    rows = np.empty((len(one) + len(other), *one.shape[1:]), one.dtype)
    rows[0::2], rows[1::2] = one, other
    return rows
