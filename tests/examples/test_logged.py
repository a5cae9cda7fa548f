"""Commands of a series: several at once, their cores, their logs, how they end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import logged
import pytest

from tests.processes import environment

SAYS_ITS_CORES = "import os; print(sorted(os.sched_getaffinity(0)))"
WITH_CORES = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no cores to choose")


def job(folder, program):
    return [sys.executable, "-c", program], folder


def said(folder):
    return folder.with_name(f"{folder.name}.log").read_text()


def test_a_training_has_its_recipe_its_folder_and_its_settings(tmp_path):
    words = logged.training_command(tmp_path / "run", ["train.seed=3", "model.dropout=0.2"], tmp_path / "recipe.toml")
    expected = ["--recipe", tmp_path / "recipe.toml", "--workdir", tmp_path / "run"]
    assert words[2:] == [*expected, "--set", "train.seed=3", "--set", "model.dropout=0.2"]
    assert words[1].is_file() and "--recipe" not in logged.training_command(tmp_path / "run", [])


def test_an_evaluation_compares_where_there_is_something_to_compare_with(tmp_path):
    alone = logged.evaluation_command(tmp_path, "a.en", "a.de", "a.txt", "a.json")
    options = ["--source", "a.en", "--reference", "a.de", "--output", "a.txt", "--json", "a.json"]
    assert alone[1:] == ["-m", "keras_transformer", "evaluate", "--workdir", tmp_path, *options]
    compared = logged.evaluation_command(tmp_path, "a.en", "a.de", "a.txt", "a.json", "other.txt")
    assert compared == [*alone, "--other", "other.txt"]


@WITH_CORES
@pytest.mark.parametrize(
    ("cores", "number", "expected"),
    [({0, 1}, 2, [{0}, {1}]), ({0, 2, 3, 5, 7}, 2, [{0, 3, 7}, {2, 5}]), ({4}, 2, [{4}, {4}]), ({1, 2}, 1, [{1, 2}])],
)
def test_cores_are_shared_out_and_none_is_left_alone(cores, number, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores)
    assert logged.shares(number) == expected


@WITH_CORES
def test_commands_run_at_the_same_time_on_their_own_cores(tmp_path):
    meets = (
        "import pathlib, time; pathlib.Path({own!r}).touch()\n"
        "while not pathlib.Path({other!r}).exists(): time.sleep(0.01)\n"
    )
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    before = os.sched_getaffinity(0)
    logged.run_together(
        [
            job(tmp_path / "a", meets.format(own=first, other=second) + SAYS_ITS_CORES),
            job(tmp_path / "b", meets.format(own=second, other=first) + SAYS_ITS_CORES),
        ]
    )
    assert [said(tmp_path / name) for name in "ab"] == [f"{sorted(cores)}\n" for cores in logged.shares(2)]
    assert os.sched_getaffinity(0) == before


def test_where_one_fails_the_other_is_stopped(tmp_path, capsys):
    began = time.monotonic()
    with pytest.raises(SystemExit) as stopped:
        logged.run_together(
            [
                job(tmp_path / "a", "import time; time.sleep(60)"),
                job(tmp_path / "b", "print('why'); raise SystemExit(3)"),
            ]
        )
    assert stopped.value.code == 3 and time.monotonic() - began < 30
    message = capsys.readouterr().err
    assert "why" in message and "b stopped with exit code 3" in message and "a stopped" not in message


def test_a_command_that_cannot_be_started_stops_the_other(tmp_path):
    began = time.monotonic()
    with pytest.raises(FileNotFoundError):
        logged.run_together([job(tmp_path / "a", "import time; time.sleep(60)"), (["no such"], tmp_path / "b")])
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("saves_its_state", [True, False])
def test_a_signal_reaches_all_once_and_the_exit_code_says_so(tmp_path, saves_its_state):
    """A training saves its state at SIGTERM and ends with 143; one that has not begun, and a translation, just end."""
    saves = (
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    with open({saved!r}, 'a') as file: file.write('x')\n"
        "    time.sleep({seconds}); sys.exit(143)\n"
        f"if {saves_its_state}: signal.signal(signal.SIGTERM, save)\n"
        "pathlib.Path({ready!r}).touch(); time.sleep(60)"
    )
    jobs = [
        job(
            tmp_path / name,
            saves.format(saved=str(tmp_path / f"{name}.saved"), ready=str(tmp_path / f"{name}.ready"), seconds=seconds),
        )
        for name, seconds in (("a", 0), ("b", 1))
    ]
    named = [(command, str(folder)) for command, folder in jobs]
    program = f"import pathlib, logged; logged.run_together([(c, pathlib.Path(f)) for c, f in {named!r}])"
    command, path = [sys.executable, "-c", program], Path(logged.__file__).parent
    series = subprocess.Popen(command, env=environment(path), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not all((tmp_path / f"{name}.ready").exists() for name in "ab"):
        assert time.monotonic() < deadline and series.poll() is None
        time.sleep(0.02)
    series.send_signal(signal.SIGTERM)
    _, message = series.communicate(timeout=60)
    assert series.returncode == 143 and "Run the same command to go on." in message
    if saves_its_state:
        assert [(tmp_path / f"{name}.saved").read_text() for name in "ab"] == ["x", "x"]
