import ctypes
import itertools
import resource
import threading

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import prefetch
from keras_transformer.data.prefetch import prefetched

SPEC = tf.TensorSpec((None,), tf.int32)


def test_it_gives_all_in_order_at_every_pass():
    dataset = prefetched(lambda: (np.full(i, i, np.int32) for i in range(5)), SPEC)
    for _ in range(2):
        assert [x.numpy().tolist() for x in dataset] == [[i] * i for i in range(5)]


def test_it_works_ahead():
    made, enough = [], threading.Event()

    def batches():
        for i in range(100):
            made.append(i)
            if len(made) > prefetch.NUM_READY:
                enough.set()
            yield np.array([i], np.int32)

    iterator = iter(prefetched(batches, SPEC))
    next(iterator)
    assert enough.wait(timeout=10.0)  # seconds
    assert len(made) < 50


def test_freed_memory_is_kept_for_the_next_step():
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        pytest.skip("Needs glibc.")
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]

    def faults():
        """Of taking and freeing 8 MiB twenty times."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            memory = libc.malloc(2**23)
            libc.memset(memory, 1, 2**23)
            libc.free(memory)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    next(iter(prefetched(lambda: iter([np.zeros(1, np.int32)]), SPEC)))
    assert faults() < 8000  # 2,048 a time if the memory were given back


def test_it_ends_when_the_process_does(monkeypatch):
    monkeypatch.setattr(prefetch, "_ending", threading.Event())
    iterator = iter(prefetched(lambda: itertools.repeat(np.zeros(1, np.int32)), SPEC))
    next(iterator)
    prefetch._stop_calls()
    assert sum(1 for _ in iterator) <= prefetch.NUM_READY + 2
