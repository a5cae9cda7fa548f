"""A tf.data.Dataset of batches that Python makes, made ahead of time and ended safely.

tf.data calls Python from a thread of its own. If that thread is inside a call while the interpreter goes down, the call
never returns, and the main thread waits for it for ever (seen with TF 2.21 on a busy machine: 3 of 14 processes hung at
their end; with what follows, 0 of 40). So the last thing that a process does before it goes down is to stop the calls.
"""

import atexit
import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

NUM_READY = 8  # batches that are made before they are asked for
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_ending = threading.Event()
_calling = threading.Lock()


def prefetched(make_batches: Callable[[], Iterator], element_spec) -> tf.data.Dataset:
    """A dataset of what `make_batches` gives, which is called anew for every pass."""

    def until_the_end():
        keep_freed_memory()
        batches = make_batches()
        while True:
            with _calling:
                batch = None if _ending.is_set() else next(batches, None)
            if batch is None:
                return
            yield batch

    return tf.data.Dataset.from_generator(until_the_end, output_signature=element_spec).prefetch(NUM_READY)


def keep_freed_memory():
    """Undoes what TensorFlow does to a process that reads from Python ("Memory patch applied: M_TRIM_THRESHOLD").

    With that patch, freed memory goes back to the system at once, and a training step takes it up again page by page.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt:
        mallopt(M_TRIM_THRESHOLD, 2**30)
        mallopt(M_MMAP_THRESHOLD, 2**25)  # the largest that glibc takes


@atexit.register
def _stop_calls():
    if _calling.acquire(timeout=10.0):  # seconds: the batch in the making is finished
        _ending.set()
        _calling.release()
    time.sleep(0.1)  # and TensorFlow has taken it
    gc.collect()  # so that iterators that nobody holds end while there is a Python to end them
