"""Names become strategies, batches become equal parts."""

import json
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import ConfigError
from keras_transformer.training.strategy import (
    LostWorkerError,
    barrier,
    describe,
    distribute,
    from_chief,
    is_chief,
    is_same,
    lost_workers_reported,
    make_strategy,
    num_local_replicas,
    worker_index,
)
from tests.processes import environment
from tests.training.batches import dataset, random_batches

GPUS = tf.config.list_logical_devices("GPU")


@pytest.mark.parametrize("name, replicas", [("auto", len(GPUS) or 1), ("one_device", 1), ("mirrored", 2)])
def test_a_name_becomes_its_strategy(name, replicas):
    strategy = make_strategy(name)
    assert strategy.num_replicas_in_sync == num_local_replicas(strategy) == replicas
    assert is_chief(strategy)
    assert describe(strategy) == ("GPU" if GPUS else "CPU") + (f", {replicas} replicas" if replicas > 1 else "")
    barrier(strategy)  # alone: nobody to wait for
    assert from_chief(strategy, 0.1) == 0.1
    assert is_same(strategy, 0.1)


@pytest.mark.parametrize("found", [0, 1, 2])
def test_auto_takes_every_gpu_where_there_are_several(monkeypatch, found):
    cpus = tf.config.list_logical_devices("CPU")
    listed = {"CPU": cpus, "GPU": (GPUS or cpus)[:found]}
    monkeypatch.setattr(tf.config, "list_logical_devices", listed.get)
    strategy = make_strategy("auto")
    assert isinstance(strategy, tf.distribute.MirroredStrategy) == (found == 2)
    assert strategy.num_replicas_in_sync == max(found, 1)
    assert describe(strategy) == ("CPU", "GPU", "GPU, 2 replicas")[found]


@pytest.mark.parametrize("workers, said", [(["a:1", "b:1"], "TF_CONFIG names 2 processes"), (["a:1"], ""), (None, "")])
def test_auto_says_that_a_cluster_has_no_effect(monkeypatch, capsys, workers, said):
    given = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}} if workers else {}
    monkeypatch.setenv("TF_CONFIG", json.dumps(given))
    assert make_strategy("auto").num_replicas_in_sync == (len(GPUS) or 1)
    err = capsys.readouterr().err
    assert said in err if said else not err


@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_every_row_of_every_batch_reaches_one_replica_in_order(name):
    batches, strategy = random_batches(3), make_strategy(name)
    for batch, parts in zip(batches, distribute(dataset(batches), strategy), strict=True):
        for whole, part in zip(tf.nest.flatten(batch), tf.nest.flatten(tuple(parts)), strict=True):
            rows = [x.numpy() for x in strategy.experimental_local_results(part)]
            assert len({len(x) for x in rows}) == 1
            np.testing.assert_array_equal(np.concatenate(rows), whole)


def test_several_workers_need_their_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        make_strategy("multi_worker")


CLUSTER = {"worker": ["a:1", "b:1"]}


@pytest.mark.parametrize(
    "given",
    [
        "{",
        "null",
        "[]",
        "{}",
        json.dumps({"cluster": CLUSTER}),
        json.dumps({"cluster": {}, "task": {"type": "worker", "index": 0}}),
        json.dumps({"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}),
        json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}}),
        json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}),
        json.dumps({"cluster": {"worker": ["a", "b:1"]}, "task": {"type": "worker", "index": 0}}),
        json.dumps({"cluster": {"worker": ["a:1", "b:1x"]}, "task": {"type": "worker", "index": 0}}),
    ],
)
def test_a_cluster_that_is_none_is_shown(monkeypatch, given):
    monkeypatch.setenv("TF_CONFIG", given)
    with pytest.raises(ConfigError) as caught:
        make_strategy("multi_worker")
    assert str(caught.value).endswith(f'"task": {{"type": "worker", "index": 0}}}}. Received: TF_CONFIG={given}.')


@pytest.mark.parametrize(("cluster", "said"), [(CLUSTER, "a:1, b:1"), ({"worker": {"1": "b:1"}}, "b:1")])
def test_a_worker_says_whom_it_waits_for(monkeypatch, capsys, cluster, said):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}}))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda: "all are there")
    assert make_strategy("multi_worker") == "all are there"
    assert capsys.readouterr().err == f"Waiting until all workers are there: {said}\n"


def test_a_worker_that_waits_for_the_others_can_be_interrupted():
    with socket.create_server(("127.0.0.1", 0)) as mine, socket.create_server(("127.0.0.1", 0)) as others:
        workers = [f"127.0.0.1:{each.getsockname()[1]}" for each in (mine, others)]
    of_child = environment(
        TF_CONFIG=json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})
    )
    code = "from keras_transformer.training.strategy import make_strategy as m; m('multi_worker')"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=of_child) as waiting:
        assert any(line.startswith("Waiting until all workers") for line in waiting.stderr)
        time.sleep(3)  # it waits in native code
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(30) == -signal.SIGINT


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_worker_that_is_gone_is_said_to_the_others(replicas):
    strategy = SimpleNamespace(num_replicas_in_sync=2, extended=SimpleNamespace(worker_devices=["here"] * replicas))
    trace = "Graph execution error:\n\nDetected at node step\n  File f\n\n"
    error = tf.errors.UnavailableError(None, None, f"{trace}Connection reset by peer\n\t [[step]]")
    expected = (
        (LostWorkerError, "Start all of them again.*Received: Connection reset by peer$")
        if replicas == 1
        else (type(error), "reset by peer")
    )
    with pytest.raises(expected[0], match=expected[1]), lost_workers_reported(strategy):
        raise error


@pytest.mark.parametrize("jobs", [["chief", "worker", "worker"], ["worker", "worker", "worker"]])
def test_one_process_of_a_cluster_is_the_chief(jobs):
    cluster = {job: [f"host{i}:1" for i, other in enumerate(jobs) if other == job] for job in jobs}
    indices = []
    for job in cluster:
        for number in range(len(cluster[job])):
            resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster), task_type=job, task_id=number
            )
            indices.append(worker_index(SimpleNamespace(cluster_resolver=resolver)))
    assert indices == [0, 1, 2]
