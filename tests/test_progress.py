import sys

import pytest

from keras_transformer import progress as progress_module
from keras_transformer.progress import Progress, duration


@pytest.fixture
def clock(monkeypatch):
    """A second passes at every look."""
    seconds = iter(range(1000))
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: float(next(seconds)))


def test_durations_read_well():
    assert [duration(s) for s in (5, 65, 3605)] == ["0:05", "1:05", "1:00:05"]


def test_quick_work_shows_nothing(capsys):
    assert list(Progress("Reading", "pairs").count("abc")) == list("abc")
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(clock, capsys):
    list(Progress("Reading", "pairs").count(range(25)))
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4
    assert lines[-1].startswith("Reading 25 pairs, ")
    assert all(line.endswith("/s") for line in lines)


def test_no_line_comes_twice(monkeypatch, capsys):
    times = iter([0, 11, 11])  # the only item is there after 11 seconds
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: float(next(times)))
    list(Progress("Reading", "pairs").count(range(1)))
    assert capsys.readouterr().err == "Reading 1 pairs, 0.1/s\n"


def test_a_terminal_gets_one_line_with_a_bar(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    list(Progress("Reading", "pairs", total=4).count(range(4)))
    shown = capsys.readouterr().err
    assert shown.endswith("\n")
    assert shown.count("\n") == 1
    assert f"\r\033[KReading [{'=' * 15}{' ' * 15}] 2 pairs" in shown
    assert f"\r\033[KReading [{'=' * 30}] 4 pairs" in shown


def test_the_line_is_ended_when_the_work_fails(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(ZeroDivisionError):
        for number in Progress("Reading", "pairs").count(range(5, -1, -1)):
            assert 1 / number
    progress = Progress("Reading", "pairs")
    with pytest.raises(ZeroDivisionError), progress:
        progress.add(7)
        raise ZeroDivisionError
    assert capsys.readouterr().err.endswith("\n")


def test_a_process_without_standard_error_is_shown_nothing(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # closed, as for a daemon
    assert list(Progress("Reading", "pairs").count(range(25))) == list(range(25))
