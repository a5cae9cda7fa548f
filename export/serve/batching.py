"""The requests of several clients in one call.

    three requests      rows of inputs, one call    rows of outputs, split again
    a (2 rows)          a a b c c c              -> a a | b | c c c
    b (1 row)
    c (3 rows)

A request waits a few milliseconds for company, or until a thread is free. Requests are checked before they come here;
where a call of several fails nevertheless, each of them is run alone, so that only the one that caused it is told.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from export.serve import RequestError

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How much is done at once."""

    max_rows: int = 32  # of a call, and so of a request: as export/templates/batching.config has it for TF Serving
    max_wait: float = 0.003  # seconds that a request waits for company
    max_queued_rows: int = 1024  # of a signature; more are refused
    num_threads: int = 2  # calls at a time


class _Waiting(NamedTuple):
    inputs: Arrays
    num_rows: int
    answer: asyncio.Future


class Batcher:
    """Batches the requests of one signature.

    Args:
        run: inputs to outputs, all of them with the rows in dimension 0; called in a thread of `executor`.
        merges: whether requests may share a call at all.
    """

    def __init__(self, run: Callable[[Arrays], Arrays], executor: Executor, settings: BatchSettings, merges=True):
        self._run, self._executor, self._settings, self._merges = run, executor, settings, merges
        self._queue: deque[_Waiting] = deque()
        self._workers: set[asyncio.Task] = set()

    async def submit(self, inputs: Arrays) -> Arrays:
        """The outputs for these inputs alone; a request that is cancelled while it waits is not run."""
        num_rows = len(next(iter(inputs.values())))
        largest, limit, num_queued = self._settings.max_rows, self._settings.max_queued_rows, self._num_queued()
        if num_rows > largest:  # in the words of TF Serving
            raise RequestError(400, f"Task size {num_rows} is larger than maximum input batch size {largest}")
        if num_queued + num_rows > limit:
            raise RequestError(503, f"The queue is full: {num_queued} of {limit} rows are waiting")
        waiting = _Waiting(inputs, num_rows, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        if len(self._workers) < self._settings.num_threads:
            self._workers.add(asyncio.create_task(self._work()))
        return await waiting.answer

    def _num_queued(self):
        return sum(waiting.num_rows for waiting in self._queue if not waiting.answer.done())

    async def _work(self):
        try:
            while self._queue:
                if self._merges and self._num_queued() < self._settings.max_rows:
                    await asyncio.sleep(self._settings.max_wait)
                batch = self._take()
                if batch:
                    await self._answer(batch)
        finally:
            self._workers.discard(asyncio.current_task())  # at once: the next request must not count on it

    def _take(self):
        batch, num_rows = [], 0
        while self._queue and (not batch or self._merges):
            if batch and num_rows + self._queue[0].num_rows > self._settings.max_rows:
                break
            waiting = self._queue.popleft()
            if not waiting.answer.done():  # else its client has been told that it took too long
                batch.append(waiting)
                num_rows += waiting.num_rows
        return batch

    async def _answer(self, batch):
        batch = [waiting for waiting in batch if not waiting.answer.done()]
        if not batch:
            return
        try:
            parts = await asyncio.get_running_loop().run_in_executor(self._executor, self._call, batch)
        except Exception as error:
            if len(batch) > 1:
                for waiting in batch:
                    await self._answer([waiting])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for waiting, part in zip(batch, parts, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(part)

    def _call(self, batch):
        """In a thread: merges, runs and splits; nothing where all clients have been told that it took too long."""
        if all(waiting.answer.done() for waiting in batch):
            return [None] * len(batch)
        outputs = self._run({name: np.concatenate([each.inputs[name] for each in batch]) for name in batch[0].inputs})
        ends = np.cumsum([waiting.num_rows for waiting in batch])
        wrong = {name: array.shape for name, array in outputs.items() if array.shape[:1] != (ends[-1],)}
        if wrong:
            raise RuntimeError(f"Every output must have {ends[-1]} rows, as the inputs. Received shapes: {wrong}.")
        columns = {name: np.split(array, ends[:-1]) for name, array in outputs.items()}
        return [{name: column[index] for name, column in columns.items()} for index in range(len(batch))]
