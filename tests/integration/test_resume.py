"""Real processes, killed for real: a run that was interrupted ends as the run that was not."""

import json
import random
import signal
import time

import numpy as np
import pytest

from keras_transformer.training.checkpoints import read_arrays
from keras_transformer.training.journal import read_log
from tests.integration.runs import STEPS, finish, start


def outcome(workdir):
    """Everything that must not depend on interruptions."""
    times = ("seconds", "tokens_per_second")
    log = [{k: v for k, v in record.items() if k not in times} for record in read_log(workdir / "log.jsonl")]
    newest = read_arrays(workdir / "checkpoints" / f"step-{STEPS:08d}.npz")
    return log, newest.arrays, newest.state, json.loads((workdir / "model.json").read_text())


def assert_same(a, b):
    assert a[0] == b[0]
    assert a[1].keys() == b[1].keys()
    for name in a[1]:
        np.testing.assert_array_equal(a[1][name], b[1][name], err_msg=name)
    assert a[2:] == b[2:]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("uninterrupted") / "run"
    code, said = finish(workdir)
    assert code == 0, said
    return workdir


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.002)


def steps_logged(workdir):
    log = workdir / "log.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


def test_sigterm_saves_and_exits_with_143_and_the_same_command_resumes(uninterrupted, tmp_path, monkeypatch):
    workdir = tmp_path / "run"
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")  # with warnings
    process = start(workdir)
    wait_for(lambda: steps_logged(workdir) >= 2, process)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert said.rstrip().endswith("The same command resumes.")  # TensorFlow's warnings do not come last
    assert (workdir / "checkpoints" / "interrupted.npz").exists()
    code, said = finish(workdir)
    assert code == 0 and "Resuming at step" in said
    assert_same(outcome(workdir), outcome(uninterrupted))


def test_a_compiled_run_with_muon_a_cooldown_and_random_cuts_resumes_to_the_bit(tmp_path):
    changes = {"train.xla": "true", "train.optimizer": "muon", "train.cooldown_steps": 20, "data.buckets": 1}
    changes |= {"train.valid_steps": STEPS, "train.ema_decay": "none"}  # fewer programs to compile
    changes["data.subword_sampling"] = 0.1  # by random numbers that are the same in another process
    code, said = finish(tmp_path / "whole", **changes)
    assert code == 0, said
    process = start(tmp_path / "run", **changes)
    wait_for(lambda: steps_logged(tmp_path / "run") >= 4, process)
    process.kill()
    process.communicate()
    code, said = finish(tmp_path / "run", **changes)
    assert code == 0 and "Resuming at step" in said, said
    assert_same(outcome(tmp_path / "run"), outcome(tmp_path / "whole"))


def test_a_run_whose_log_nobody_reads_any_more_is_interrupted_as_any_other(uninterrupted, tmp_path):
    workdir = tmp_path / "run"
    process = start(workdir)
    wait_for(lambda: steps_logged(workdir) >= 2, process)
    process.stdout.close()  # as Ctrl-C ends the `tee` behind it, too
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert (workdir / "checkpoints" / "interrupted.npz").exists()
    process = start(workdir)
    process.stdout.close()  # and from the beginning
    assert process.wait(timeout=300) == 0
    assert_same(outcome(workdir), outcome(uninterrupted))


def test_sigkill_at_a_checkpoint_being_written_loses_nothing(uninterrupted, tmp_path):
    workdir = tmp_path / "run"
    process = start(workdir)
    later = [workdir / "checkpoints" / f"step-{step:08}.npz.partial" for step in range(14, STEPS, 7)]  # than the first
    wait_for(lambda: any(partial.exists() for partial in later), process)  # a busy machine may let one slip by
    process.kill()
    process.communicate()
    code, said = finish(workdir)
    assert code == 0 and "Resuming at step" in said
    assert_same(outcome(workdir), outcome(uninterrupted))


def test_a_changed_configuration_is_refused_and_no_file_is_touched(uninterrupted):
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*") if path.name != "lock"}
    code, said = finish(uninterrupted, **{"model.d_ff": 64})
    assert code == 1 and "model.d_ff: 32 -> 64" in said
    after = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*") if path.name != "lock"}
    assert after == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sigkill_at_random_moments_several_times_over(uninterrupted, tmp_path, seed):
    workdir, moments = tmp_path / "run", random.Random(seed)
    for kill in range(3):
        process = start(workdir)
        lines = kill * 2 + moments.randint(1, 3)  # a record comes every five steps: each kill lands later in the run
        wait_for(lambda lines=lines: steps_logged(workdir) >= lines, process)
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        process.communicate()
    code, said = finish(workdir)
    assert code == 0 and "Resuming at step" in said, said
    assert_same(outcome(workdir), outcome(uninterrupted))
