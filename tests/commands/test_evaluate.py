"""Scores of a test set, from a run or from files."""

import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace

import pytest

from keras_transformer import compilation
from keras_transformer.__main__ import main
from keras_transformer.commands import evaluate
from keras_transformer.commands.evaluate import _write


def run(*arguments):
    return main(["evaluate", *map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    contents = {
        "source": ["the cat sleeps", "the dog sees the cat", "a man reads"] * 4,
        "reference": ["die Katze schläft jetzt", "der Hund sieht die Katze", "ein Mann liest ein Buch"] * 4,
        "good": ["die Katze schläft jetzt", "der Hund sieht die Katze", "ein Mann liest das Buch"] * 4,
        "bad": ["Katze die", "der der der der der der", ""] * 4,
    }
    for name, lines in contents.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    return tmp_path


def test_translations_in_a_file_are_scored_and_compared(files, capsys):
    page, record = files / "report.html", files / "report.json"
    code = run(
        "--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good",
        "--other", files / "bad", "--json", record, "--html", page,
    )  # fmt: skip
    assert code == 0
    said = capsys.readouterr().out
    assert "BLEU" in said and "tok:13a" in said
    assert json.loads(record.read_text())["scores"]["bleu"]["value"] > 50
    assert page.read_text().startswith("<!DOCTYPE html") and "Attention" not in page.read_text()


def test_without_files_the_test_set_of_the_run_is_translated(finished_run, tmp_path, capsys):
    output, page = tmp_path / "translations", tmp_path / "report.html"
    assert run("--workdir", finished_run, "--output", output, "--html", page, "--lowercase") == 0
    assert output.read_text().count("\n") == 1000
    said = capsys.readouterr().out
    assert "case:lc" in said and "sentences/s" in said and "cores" in said and "parameters" in said
    if importlib.util.find_spec("matplotlib"):
        assert page.read_text().count("data:image/png") > 1 and "Attention in line" in page.read_text()


@pytest.mark.parametrize("name", ["source", "reference", "good", "bad"])
def test_text_that_is_not_utf8_is_not_scored(files, name, capsys):
    (files / name).write_bytes((files / "reference").read_text().encode("latin-1"))  # "schl\xe4ft" in the first line
    code = run(
        "--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good",
        "--other", files / "bad",
    )  # fmt: skip
    assert code == 1
    assert f"{name}, line 1: expected UTF-8. Received: byte 0xe4" in capsys.readouterr().err


def test_scores_do_not_depend_on_when_compiling_pays(finished_run, files, monkeypatch):
    monkeypatch.setattr(compilation, "COMPILE_SECONDS", 0.0)
    monkeypatch.setattr(compilation.WhereItPays, "_by_xla", lambda *_: pytest.fail("compiled"))
    given = "--workdir", finished_run, "--source", files / "source", "--reference", files / "reference"
    assert run(*given, "--set", "decode.tokens_per_batch=16") == 0


def test_a_report_with_such_a_name_is_packed(files):
    arguments = "--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good"
    assert run(*arguments, "--json", files / "found.json.gz", "--html", files / "found.html.gz") == 0
    assert "scores" in json.loads(gzip.decompress((files / "found.json.gz").read_bytes()))
    assert b"<html" in gzip.decompress((files / "found.html.gz").read_bytes())


def test_the_files_are_written_though_nobody_reads_the_report(files, monkeypatch):
    def print_to_nobody(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(evaluate, "print", print_to_nobody, raising=False)
    texts = ("--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good")
    assert run(*texts, "--json", files / "record") == 141
    assert json.loads((files / "record").read_text())["scores"]


def test_scores_that_could_go_nowhere_are_refused_before_the_work(files, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    texts = ("--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good")
    message = "error: Scores need an open stdout, --json or --html. Received: a closed stdout.\n"
    assert run(*texts) == 1 and capsys.readouterr().err == message
    assert run(*texts, "--output", files / "output") == 1 and not (files / "output").exists()
    assert run(*texts, "--json", files / "report.json") == 0 and (files / "report.json").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_a_standard_output_that_has_no_room_is_named(files):
    names = {"--source": "source", "--reference": "reference", "--hypotheses": "good"}
    texts = [word for option, name in names.items() for word in (option, files / name)]
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "keras_transformer", "evaluate", *texts]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1 and "error: [Errno 28] No space left on device: 'standard output'\n" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_report_that_has_no_room_is_named(files, capsys, option):
    texts = ("--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good")
    assert run(*texts, option, "/dev/full") == 1
    assert capsys.readouterr().err == "error: [Errno 28] No space left on device: '/dev/full'\n"


def test_nothing_is_written_over_what_is_read(files, capsys):
    arguments = ("--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good")
    before = {path: path.read_text() for path in files.iterdir()}
    for option in ("--output", "--json", "--html"):
        for path in before:
            assert run(*arguments, "--other", files / "bad", option, path) == 1
            assert "not be a file that is read" in capsys.readouterr().err
    assert {path: path.read_text() for path in files.iterdir()} == before
    assert run(*arguments, "--json", files / "nowhere" / "x") == 1
    told = capsys.readouterr()
    assert "BLEU" not in told.out and "can be written" in told.err  # said before the work
    assert run(*arguments, "--html", files / "page", "--json", files / ".." / files.name / "page") == 2
    assert "different files" in capsys.readouterr().err
    assert not (files / "page").exists()
    (files / "link").symlink_to(files / "elsewhere")  # which is not there yet
    assert run(*arguments, "--json", files / "link") == 0
    assert (files / "link").is_symlink() and json.loads((files / "elsewhere").read_text())


def test_nothing_is_written_over_what_a_run_needs(finished_run, files, capsys):
    folder = shutil.copytree(finished_run, files / "run", ignore=shutil.ignore_patterns("data", "checkpoints"))
    config = json.loads((folder / "config.json").read_text())
    config["data"]["test"] = [str(files / "source"), str(files / "reference")]
    (folder / "config.json").write_text(json.dumps(config))
    needed = [folder / "config.json", folder / "model.keras", folder / "tokenizer.model", files / "reference"]
    before = [path.read_bytes() for path in needed]
    for path in needed:
        assert run("--workdir", folder, "--hypotheses", files / "good", "--output", path) == 1
        assert "must not be a file that is read" in capsys.readouterr().err
    assert [path.read_bytes() for path in needed] == before


def test_what_fails_leaves_no_file_behind(finished_run, files, capsys):
    page = files / "page"
    assert run("--workdir", files / "nowhere", "--html", page) == 1
    assert run("--workdir", finished_run, "--set", "decode.nonsense=1", "--html", page) == 2
    assert (
        run("--workdir", finished_run, "--hypotheses", files / "good", "--set", "decode.alpha=1", "--html", page) == 2
    )
    assert "--set changes how" in capsys.readouterr().err
    assert run("--hypotheses", files / "good", "--ensemble", finished_run, "--html", page) == 2
    assert "--ensemble changes how" in capsys.readouterr().err
    assert not page.exists()


def test_wrong_files_are_said_in_one_line(files, tmp_path, capsys):
    (files / "short").write_text("one line\n")
    arguments = ("--source", files / "source", "--reference", files / "reference")
    assert run(*arguments, "--hypotheses", files / "short") == 1
    assert "12 references" in capsys.readouterr().err
    assert run(*arguments, "--hypotheses", files / "good", "--other", files / "short") == 1
    assert "1 other" in capsys.readouterr().err
    assert run("--source", files / "source") == 2
    assert "belong together" in capsys.readouterr().err
    assert run("--workdir", tmp_path / "nowhere") == 1
    assert "config.json" in capsys.readouterr().err


def test_a_run_in_lower_case_is_scored_as_it_scored_itself(finished_run, files, tmp_path, capsys):
    folder = shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("data", "checkpoints"))
    config = json.loads((folder / "config.json").read_text())
    config["data"]["lowercase"] = True
    (folder / "config.json").write_text(json.dumps(config))
    assert run("--workdir", folder) == 0
    assert "case:lc" in capsys.readouterr().out
    arguments = ("--source", files / "source", "--reference", files / "reference")
    assert run("--workdir", folder, *arguments) == 0
    assert "case:lc" in capsys.readouterr().out
    assert run("--workdir", folder, *arguments, "--hypotheses", files / "good") == 0
    assert "case:lc" in capsys.readouterr().out


def test_a_run_that_reads_its_text_the_other_way_round_is_evaluated_so(tmp_path):
    (tmp_path / "test.tsv").write_text("a\tb\nc\td\n")
    data = {"train": str(tmp_path / "train.tsv"), "test": str(tmp_path / "test.tsv"), "reverse": True}
    (tmp_path / "config.json").write_text(json.dumps({"data": data}))
    sources, references, _ = evaluate._test_set(Namespace(workdir=str(tmp_path), source=None))
    assert (sources, references) == (["b", "d"], ["a", "c"])


def test_bleu_counts_what_is_asked_for(files, capsys):
    arguments = ("--source", files / "source", "--reference", files / "reference", "--hypotheses", files / "good")
    for name in ("none", "char"):
        assert run(*arguments, "--tokenize", name) == 0
        assert f"tok:{name}" in capsys.readouterr().out


def test_a_line_stays_a_line_in_the_output(files, capsys):
    _write(Namespace(output=str(files / "out"), json=None, html=None), None, ["one\ntwo", "three"], None)
    assert (files / "out").read_text() == "one two\nthree\n"
