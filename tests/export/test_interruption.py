"""Whatever moment an export is stopped at, a server that looks at the folder all the time finds whole versions only."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from export.versions import versions
from tests.export.test_c_api import MISSING, libraries
from tests.processes import environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Reader:
    """A process that loads every version at once when it appears."""

    def __init__(self, to):
        command = [sys.executable, HERE / "reader.py", to, *libraries()]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([*map(str, command)], text=True, **pipes)
        if self.process.stdout.readline() != "ready\n":
            _, said = self.process.communicate()
            assert self.process.returncode == MISSING, said
            pytest.skip(f"this build of TensorFlow cannot be used from C: {said.strip()}")

    def end(self):
        """{version: an error, or ""}"""
        out, said = self.process.communicate("end\n", timeout=60)
        assert self.process.returncode == 0, said
        return {int(version): error for version, error in json.loads(out).items()}


@pytest.fixture(scope="module")
def start(exported):
    """A function that starts an export to a folder and returns the number of its process."""
    command = [sys.executable, HERE / "writer.py", exported]
    of_child = environment(ROOT, TF_CPP_MIN_LOG_LEVEL="3")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*map(str, command)], text=True, env=of_child, **pipes) as process:

        def start(to, how="aside"):
            process.stdin.write(f"{how} {to}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield start


def wait_for_the_end(process, seconds=60):
    for _ in range(seconds * 200):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.005)
    raise TimeoutError(process)


def stop(process, how, after):
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError):  # it had come to its end
        os.kill(process, how)
    wait_for_the_end(process)


def unfinished(to):
    return sorted(path.name for path in to.glob(".writing-*"))


def test_a_reader_never_sees_a_part_of_a_version(start, tmp_path):
    reader, left = Reader(tmp_path), 0
    wait_for_the_end(start(tmp_path))
    began = time.monotonic()
    wait_for_the_end(start(tmp_path))
    duration = time.monotonic() - began
    for _ in range(18):
        stop(start(tmp_path), signal.SIGKILL, random.uniform(0, 1.2 * duration))
        left += len(unfinished(tmp_path))
    assert left >= 5  # so many were stopped in the middle
    for _ in range(4):
        process = start(tmp_path)
        stop(process, signal.SIGINT, random.uniform(0.2, 0.8) * duration)
        assert not [name for name in unfinished(tmp_path) if name.endswith(f"-{process}")]
    wait_for_the_end(start(tmp_path))
    assert unfinished(tmp_path) == []
    found, there = reader.end(), versions(tmp_path)
    assert found == dict.fromkeys(there, "") and len(found) >= 3


def test_a_version_that_is_written_in_place_is_seen_in_part(start, tmp_path):
    """So the test above would notice."""
    reader = Reader(tmp_path)
    wait_for_the_end(start(tmp_path, "inside"))
    assert reader.end()[1] != ""


@pytest.mark.slow
def test_a_reader_never_sees_a_part_of_a_real_export(finished_run, tmp_path):
    to = tmp_path / "demo"
    to.mkdir()
    reader = Reader(to)
    command = [sys.executable, "-m", "export", "--workdir", str(finished_run), "--to", str(to)]
    of_child = environment(TF_CPP_MIN_LOG_LEVEL="3")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    began = time.monotonic()
    assert subprocess.run(command, cwd=ROOT, env=of_child, **quiet).returncode == 0
    duration = time.monotonic() - began
    for how in [signal.SIGKILL, signal.SIGINT] * 3:
        with subprocess.Popen(command, cwd=ROOT, env=of_child, **quiet) as process:
            time.sleep(random.uniform(0.2, 1.0) * duration)
            process.send_signal(how)
            process.wait()
            if how == signal.SIGINT:
                assert not [name for name in unfinished(to) if name.endswith(f"-{process.pid}")]
    assert subprocess.run(command, cwd=ROOT, env=of_child, **quiet).returncode == 0
    assert unfinished(to) == []
    found = reader.end()
    assert found == dict.fromkeys(versions(to), "") and len(found) >= 2
