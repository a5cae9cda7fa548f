"""Fixtures of the tests of the benchmarks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_script():
    def run(script, *arguments):
        """The JSON lines that a script of benchmarks/ prints."""
        command = [sys.executable, ROOT / "benchmarks" / script, *map(str, arguments)]
        pipes = dict(capture_output=True, text=True, stdin=subprocess.DEVNULL)
        done = subprocess.run(command, env=environment(ROOT), **pipes)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.fixture
def run_here(monkeypatch, capsys):
    def run(script, *arguments):
        """The same, in this process, of a script that has been imported."""
        monkeypatch.setattr(sys, "argv", [script.__file__, *map(str, arguments)])
        script.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run
