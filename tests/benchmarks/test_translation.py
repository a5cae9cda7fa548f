"""benchmarks/translation.py"""

import sys

import pytest
import translation

from keras_transformer.commands import translate

ECHO = """\
import sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
lines = open(given["--input"]) if "--input" in given else sys.stdin
output = open(given["--output"], "w") if "--output" in given else sys.stdout
for line in iter(lines.readline, ""):
    print(line, end="", file=output, flush=True)
"""


@pytest.fixture
def processes(monkeypatch):
    """Those that the benchmark starts give back what they get."""

    def pretend(program):
        monkeypatch.setattr(
            translation, "command", lambda workdir, *given: [sys.executable, "-c", program, *map(str, given)]
        )

    pretend(ECHO)
    monkeypatch.setattr(translate, "load_translator", translate.load_translator)  # the benchmark puts its own there
    return pretend


def test_every_figure_of_a_finished_run(processes, finished_run, run_here):
    first, few, many, overhead = run_here(translation, "--workdir", finished_run, "--lines", 3, 4003, "--repeats", 2)
    assert [record["unit"] for record in (first, few, many, overhead)] == ["s", "lines/s", "lines/s", "%"]
    assert 0 < first["min"] <= first["median"] <= first["max"]
    for number, record in ((3, few), (4003, many)):
        assert record["lines"] == number and record["peak_memory_mib"] > 0
        assert record["median"] > 0
    assert 0 < overhead["min"] <= overhead["max"] < 100 and overhead["lines"] == 3


def test_a_text_that_is_too_short_comes_again(tmp_path):
    (tmp_path / "text").write_text("a b\nc\u2028d\n")
    written = translation.write(tmp_path / "again", tmp_path / "text", 5)
    assert written.read_text() == "a b\nc\u2028d\na b\nc\u2028d\na b\n"


def test_a_process_that_fails_is_not_measured(processes, finished_run, run_here):
    processes("import sys; sys.exit(3)")
    with pytest.raises(SystemExit, match="Received: exit code 3"):
        run_here(translation, "--workdir", finished_run, "--lines", 3)


def test_a_file_that_is_not_translated_is_not_measured(processes, finished_run, run_here):
    processes(ECHO.replace("print(line", "if '--input' not in given: print(line"))
    with pytest.raises(SystemExit, match="line by line"):
        run_here(translation, "--workdir", finished_run, "--lines", 3)


def test_a_folder_without_a_model_is_refused(run_here, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_here(translation, "--workdir", tmp_path)
    assert "which has no model.keras" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [("--lines", "-1"), ("--lines", "0"), ("--input", "nowhere")])
def test_wrong_options_are_refused_before_the_work(finished_run, run_here, capsys, wrong):
    with pytest.raises(SystemExit):
        run_here(translation, "--workdir", finished_run, *wrong)
    assert f"Received: {wrong[1]}" in capsys.readouterr().err
