import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from export.serve import RequestError, batching
from export.serve.batching import Batcher, BatchSettings


class Doubler:
    """Doubles; keeps the sizes of its calls; waits while it is closed; cannot bear 13."""

    def __init__(self):
        self.sizes, self.open = [], threading.Event()
        self.open.set()

    def __call__(self, inputs):
        assert self.open.wait(10)
        x = inputs["x"]
        self.sizes.append(len(x))
        if (x == 13).any():
            raise ValueError("13")
        return {"double": 2 * x}


def run(scenario, merges=True, **settings):
    """Runs `scenario(batcher, model)` and returns what it returns."""
    model = Doubler()

    async def play():
        with ThreadPoolExecutor(4) as executor:
            batcher = Batcher(model, executor, BatchSettings(**{"num_threads": 1, **settings}), merges)
            return await asyncio.wait_for(scenario(batcher, model), 20)

    return asyncio.run(play())


def rows(*values):
    return {"x": np.array(values)}


def test_everybody_gets_the_rows_that_are_theirs():
    async def scenario(batcher, model):
        answers = await asyncio.gather(*(batcher.submit(rows(*range(n, 2 * n))) for n in range(7)))
        return [answer["double"].tolist() for answer in answers], model.sizes

    answers, sizes = run(scenario)
    assert answers == [[2 * x for x in range(n, 2 * n)] for n in range(7)]
    assert sizes == [21]


def test_a_call_has_at_most_so_many_rows():
    async def scenario(batcher, model):
        await asyncio.gather(*(batcher.submit(rows(*range(3))) for _ in range(5)), batcher.submit(rows(*range(7))))
        return model.sizes

    assert run(scenario, max_rows=7) == [6, 6, 3, 7]


def test_requests_of_a_signature_that_does_not_merge_are_run_alone():
    async def scenario(batcher, model):
        await asyncio.gather(*(batcher.submit(rows(n)) for n in range(3)))
        return model.sizes

    assert run(scenario, merges=False) == [1, 1, 1]


def test_an_error_is_told_to_who_caused_it_alone():
    async def scenario(batcher, _):
        return await asyncio.gather(*(batcher.submit(rows(n)) for n in (12, 13, 14)), return_exceptions=True)

    first, wrong, last = run(scenario)
    assert first["double"].tolist() == [24] and last["double"].tolist() == [28]
    assert isinstance(wrong, ValueError)


def test_a_full_queue_refuses_and_then_accepts_again():
    async def scenario(batcher, model):
        model.open.clear()
        waiting = [asyncio.create_task(batcher.submit(rows(1, 2)))]
        await asyncio.sleep(0.1)  # it is being run
        waiting += [asyncio.create_task(batcher.submit(rows(1, 2))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="The queue is full: 4 of 5 rows") as caught:
            await batcher.submit(rows(1, 2))
        model.open.set()
        await asyncio.gather(*waiting)
        await batcher.submit(rows(1, 2))
        return caught.value.status

    assert run(scenario, max_queued_rows=5) == 503


def test_a_request_of_more_rows_than_a_call_is_wrong_as_it_is_for_tf_serving():
    async def scenario(batcher, _):
        await batcher.submit(rows(*range(33)))

    for merges in (True, False):
        with pytest.raises(RequestError, match="Task size 33 is larger than maximum input batch size 32") as caught:
            run(scenario, merges)
        assert caught.value.status == 400


def test_a_call_has_as_many_rows_as_one_of_tf_serving():
    template = Path(batching.__file__).parents[1] / "templates" / "batching.config"
    assert f"max_batch_size {{ value: {BatchSettings().max_rows} }}" in template.read_text(encoding="utf-8")


def test_who_has_gone_is_not_run():
    async def scenario(batcher, model):
        model.open.clear()
        first = asyncio.create_task(batcher.submit(rows(1)))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.submit(rows(1, 2, 3)), 0.05)
        last = asyncio.create_task(batcher.submit(rows(1, 2)))
        model.open.set()
        await asyncio.gather(first, last)
        return model.sizes

    assert run(scenario) == [1, 2]


def test_who_has_gone_while_other_signatures_had_the_threads_is_not_run():
    async def scenario():
        model, free = Doubler(), threading.Event()
        with ThreadPoolExecutor(1) as executor:
            executor.submit(free.wait, 10)
            batcher = Batcher(model, executor, BatchSettings(max_wait=0.0))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(batcher.submit(rows(1, 2, 3)), 0.1)  # taken out of the queue by then
            free.set()
            await batcher.submit(rows(1))
        return model.sizes

    assert asyncio.run(scenario()) == [1]


def test_several_calls_run_at_a_time():
    async def scenario(batcher, model):
        model.open.clear()
        waiting = [asyncio.create_task(batcher.submit(rows(n))) for n in range(2)]
        while len(batcher._workers) < 2:
            await asyncio.sleep(0.01)
        model.open.set()
        await asyncio.gather(*waiting)
        return model.sizes

    assert run(scenario, num_threads=2, merges=False) == [1, 1]


def test_the_loop_is_free_while_a_call_runs():
    async def scenario(batcher, model):
        model.open.clear()
        task = asyncio.create_task(batcher.submit(rows(1)))
        await asyncio.sleep(0.05)
        start = time.monotonic()
        await asyncio.sleep(0.01)
        model.open.set()
        await task
        return time.monotonic() - start

    assert run(scenario) < 5


def test_outputs_without_the_rows_of_the_inputs_are_an_error():
    async def scenario(batcher, _):
        batcher._run = lambda inputs: {"sum": np.array(3)}
        await batcher.submit(rows(1, 2))

    with pytest.raises(RuntimeError, match=r"must have 2 rows, as the inputs. Received shapes: {'sum': \(\)}"):
        run(scenario)


def test_who_comes_as_soon_as_another_is_answered_is_answered_too():
    async def scenario(batcher, model):
        return [(await batcher.submit(rows(n)))["double"].tolist() for n in range(5)]

    assert run(scenario) == [[0], [2], [4], [6], [8]]
