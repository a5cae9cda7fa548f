"""Two worker processes on one machine train the weights of one process, and resume after one of them was killed."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import keras
import numpy as np
import pytest

from keras_transformer.training.checkpoints import read_arrays
from tests.integration.runs import ROOT, STEPS, command, finish

pytestmark = pytest.mark.cpu  # two processes, which cannot share a GPU

CHANGES = {"train.strategy": "multi_worker", "model.dropout": 0.0}


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_workers(workdir, folder, second=(), **changes):
    """Two workers; `second` is what the second has otherwise."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    workers = []
    for index in range(2):
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(cluster)}
        words = command(workdir, **{**CHANGES, **changes, **(dict(second) if index else {})})
        with open(folder / f"worker{index}.txt", "w") as said:
            workers.append(subprocess.Popen(words, cwd=ROOT, env=environment, stdout=said, stderr=said))
    return workers


def said(folder):
    return "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("worker*.txt")))


def weights(workdir):
    arrays = read_arrays(workdir / "checkpoints" / f"step-{STEPS:08d}.npz").arrays
    return {name: array for name, array in arrays.items() if name.startswith(("model/", "average/"))}


def assert_close(workdir, expected):
    for name, array in weights(workdir).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights of one process with the same batches: 4 micro-batches instead of 2 workers with 2 each."""
    workdir = tmp_path_factory.mktemp("alone") / "run"
    code, words = finish(workdir, **{**CHANGES, "train.strategy": "one_device", "train.accumulation": 4})
    assert code == 0, words
    return weights(workdir)


def test_two_workers_train_the_weights_of_one_process_and_one_exports_them(alone, tmp_path):
    workers = start_workers(tmp_path / "run", tmp_path, **{"train.export": "true"})
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0], said(tmp_path)
    assert_close(tmp_path / "run", alone)
    assert [path.name for path in (tmp_path / "run" / "export").iterdir() if path.name.isdigit()] == ["1"]


def turned_pairs(folder):
    """The same pairs, which would make other batches."""
    path = folder / "turned.tsv"
    path.write_text("".join(reversed((ROOT / "tests/integration/pairs.tsv").read_text().splitlines(keepends=True))))
    return path


def other_weights(run, folder):
    """A run like the given one, with another model."""
    other = shutil.copytree(run, folder / "other", ignore=shutil.ignore_patterns("checkpoints"))
    model = keras.saving.load_model(other / "model.keras", compile=False)
    model.trainable_variables[0].assign_add(model.trainable_variables[0] * 1e-3)
    model.save(other / "model.keras")
    return other


@pytest.mark.parametrize("differs", ["train.seed", "data.train", "train.start_from"])
def test_workers_that_differ_all_end_with_one_line(finished_run, tmp_path, differs):
    first = {"train.start_from": finished_run} if differs == "train.start_from" else {}
    second = {
        "train.seed": lambda: 2,
        "data.train": lambda: turned_pairs(tmp_path),
        "train.start_from": lambda: other_weights(finished_run, tmp_path),
    }[differs]()
    workers = start_workers(tmp_path / "run", tmp_path, {differs: second}, **first)
    assert [worker.wait(timeout=120) for worker in workers] == [1, 1], said(tmp_path)
    expected = "error: Every worker must have the configuration, .* in: "
    assert re.search(expected + "nothing", (tmp_path / "worker0.txt").read_text())
    assert re.search(expected + differs, (tmp_path / "worker1.txt").read_text())
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_no_worker_writes_where_the_first_is_refused(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "tokenizer.model").write_text("of another program")
    workers = start_workers(folder, tmp_path)
    assert [worker.wait(timeout=120) for worker in workers] == [1, 1], said(tmp_path)
    assert "error: A run begins in a folder without files" in (tmp_path / "worker0.txt").read_text()
    assert "error: Another worker has ended" in (tmp_path / "worker1.txt").read_text()
    assert {path.name for path in folder.iterdir()} == {"tokenizer.model"}
    assert (folder / "tokenizer.model").read_text() == "of another program"


def test_an_address_that_another_process_has_is_said(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        cluster = {"cluster": {"worker": [address, "127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(cluster)}
        words = command(tmp_path / "run", **CHANGES)
        ended = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and not (tmp_path / "run").exists()
    assert re.search(f"error: A worker must be able to listen .*{address}", ended.stderr.splitlines()[-1])


def test_a_worker_that_cannot_begin_is_said_to_the_others(tmp_path):
    workers = start_workers(tmp_path / "run", tmp_path, second={"data.train": "/nonexistent.tsv"})
    assert [worker.wait(timeout=120) for worker in workers] == [1, 1], said(tmp_path)
    assert "Traceback" not in said(tmp_path)
    assert re.search(r"error: Another worker has ended.* Received: [^{]+\n$", (tmp_path / "worker0.txt").read_text())
    assert "error: /nonexistent.tsv: expected a readable text file" in (tmp_path / "worker1.txt").read_text()


@pytest.mark.slow
def test_a_signal_to_one_worker_stops_both_after_the_same_step(alone, tmp_path):
    workers = start_workers(tmp_path / "run", tmp_path)
    while not (tmp_path / "run" / "checkpoints" / "step-00000014.npz").exists():
        assert workers[0].poll() is None, said(tmp_path)
        time.sleep(0.01)
    workers[1].send_signal(signal.SIGTERM)
    assert [worker.wait(timeout=60) for worker in workers] == [143, 143], said(tmp_path)
    assert not (tmp_path / "run" / "model.json").exists()
    workers = start_workers(tmp_path / "run", tmp_path)
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0], said(tmp_path)
    assert_close(tmp_path / "run", alone)


@pytest.mark.slow
def test_after_one_worker_was_killed_both_start_again_and_resume(alone, tmp_path):
    workers = start_workers(tmp_path / "run", tmp_path)
    while not (tmp_path / "run" / "checkpoints" / "step-00000014.npz").exists():
        assert workers[0].poll() is None, said(tmp_path)
        time.sleep(0.01)
    workers[1].kill()
    workers[1].wait(), workers[0].wait(timeout=300)
    assert "Traceback" not in said(tmp_path) and "error: Another worker has ended" in said(tmp_path)
    workers = start_workers(tmp_path / "run", tmp_path)
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0], said(tmp_path)
    assert "Resuming at step" in (tmp_path / "worker0.txt").read_text()
    assert_close(tmp_path / "run", alone)
