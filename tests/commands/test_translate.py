"""One line in, one line out."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest

from keras_transformer import progress
from keras_transformer.__main__ import main
from keras_transformer.commands import translate
from keras_transformer.translator import Translator
from tests.small import randomise

LINES = [b"Anna sleeps.", b"", b"  ", "The\u2028dog.".encode(), b"\x00", b"\xff\xfe", b"the dog " * 131_072, b"Tom!"]


def run(workdir, *arguments):
    return main(["translate", "--workdir", str(workdir), *map(str, arguments)])


@pytest.fixture(scope="module")
def translator(finished_run):
    return Translator.load(finished_run)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"\r\n".join(LINES))  # no end of the last line
    return path


def test_there_is_a_line_for_every_line_whatever_it_holds(finished_run, translator, source, tmp_path):
    target = tmp_path / "out.txt"
    assert run(finished_run, "--input", source, "--output", target) == 0
    found = target.read_bytes().decode().split("\n")
    assert len(found) == len(LINES) + 1 and found[-1] == found[1] == found[2] == ""
    assert [found[0], found[7]] == translator.translate(["Anna sleeps.", "Tom!"])


def test_the_size_of_the_buffer_changes_nothing(finished_run, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"Anna sees {n} dogs.\n" for n in range(11)))
    found = set()
    for size in (1, 4, 4096):
        assert run(finished_run, "--input", source, "--output", target, "--buffer-lines", size) == 0
        found.add(target.read_text())
    assert len(found) == 1


def test_the_best_come_as_json_with_their_scores(finished_run, translator, source, capsysbinary):
    assert run(finished_run, "--input", source, "--nbest", 2) == 0
    found = [json.loads(line)["translations"] for line in capsysbinary.readouterr().out.splitlines()]
    assert len(found) == len(LINES)
    assert [one["text"] for one in found[0]] == [one.text for one in translator.translate_nbest(["Anna sleeps."], 2)[0]]
    assert found[1] == [{"text": "", "score": 0.0, "log_prob": 0.0, "pieces": []}]


@pytest.fixture(scope="module")
def other_run(finished_run, tmp_path_factory):
    """The run with other weights, as another seed would give them."""
    folder = tmp_path_factory.mktemp("other") / "run"
    shutil.copytree(finished_run, folder)
    model = Translator.load(finished_run).model
    randomise(model, seed=3)
    model.save(folder / "model.keras")
    return folder


def test_further_runs_translate_score_and_are_evaluated_with_the_first(finished_run, other_run, tmp_path, capsysbinary):
    (tmp_path / "in.txt").write_text("Anna sleeps.\n")
    (tmp_path / "pairs.txt").write_text("Anna sleeps.\tTom!\n")
    together = Translator.load(finished_run, other_run)
    ensemble, (best,) = ("--ensemble", other_run), together.translate(["Anna sleeps."])
    assert run(finished_run, "--input", tmp_path / "in.txt", *ensemble) == 0
    assert capsysbinary.readouterr().out.decode() == f"{best}\n"
    assert (
        main(["score", "--workdir", str(finished_run), *map(str, ("--input", tmp_path / "pairs.txt", *ensemble))]) == 0
    )
    [scored] = together.score(["Anna sleeps."], ["Tom!"])
    assert float(capsysbinary.readouterr().out) == pytest.approx(scored.log_prob, abs=1e-4)
    files = "--source", tmp_path / "in.txt", "--reference", tmp_path / "in.txt"
    written = "--output", tmp_path / "out.txt", "--html", tmp_path / "page.html"
    assert main(["evaluate", "--workdir", *map(str, (finished_run, *ensemble, *files, *written))]) == 0
    assert f"Evaluation of {finished_run}, {other_run}" in capsysbinary.readouterr().out.decode()
    assert (tmp_path / "out.txt").read_text() == f"{best}\n"
    assert "Attention in line" not in (tmp_path / "page.html").read_text()


def test_what_belongs_to_a_further_run_is_not_written_over(finished_run, other_run, source, capsys):
    config = other_run / "config.json"
    before = config.read_bytes()
    assert run(finished_run, "--input", source, "--output", config, "--ensemble", other_run) == 1
    assert str(config) in capsys.readouterr().err and config.read_bytes() == before


def test_a_sample_repeats_and_does_not_depend_on_the_buffer(finished_run, tmp_path, capsysbinary):
    source = tmp_path / "in.txt"
    source.write_text("Anna sleeps.\n" * 5)
    said = []
    for arguments in (("--sample", 7), ("--sample", 7, "--buffer-lines", 2), ("--sample", 99)):
        assert run(finished_run, "--input", source, *arguments) == 0
        said.append(capsysbinary.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert len(set(said[0].splitlines())) > 1


def test_no_two_lines_of_different_samples_draw_the_same():
    seen = []

    def sample(lines, seeds, temperature):
        if lines:
            seen.extend(seeds)
        return []

    for seed in (1, 2, 3):
        options = SimpleNamespace(nbest=None, sample=seed, temperature=None)
        translate.answering(SimpleNamespace(sample=sample), options)(0, ["Hello."] * 10)
    assert len(set(seen)) == 30 and all(0 <= seed < 2**63 for seed in seen)


@pytest.mark.parametrize(("given", "expected"), [(None, 1.0), (0.0, 0.0), (2.5, 2.5)])
def test_a_sample_has_the_temperature_that_is_asked_for(given, expected):
    asked = []
    translator = SimpleNamespace(sample=lambda lines, seeds, temperature: asked.append(temperature) or [])
    translate.answering(translator, SimpleNamespace(nbest=None, sample=1, temperature=given))(0, ["Hello."])
    assert asked == [expected]


def test_long_lists_are_made_of_fewer_lines_at_once(finished_run, tmp_path, monkeypatch):
    together = []
    monkeypatch.setattr(translate, "MAX_TRANSLATIONS", 6)
    monkeypatch.setattr(
        Translator, "translate_nbest", lambda _, lines, number: together.append(len(lines)) or [[]] * len(lines)
    )
    (tmp_path / "in").write_text("a\n" * 5)
    assert run(finished_run, "--input", tmp_path / "in", "--output", tmp_path / "out", "--nbest", 3) == 0
    assert together == [2, 2, 1] and (tmp_path / "out").read_text().count("\n") == 5


def test_a_long_input_has_a_bar_on_standard_error_and_translations_alone_on_standard_output(
    finished_run, translator, tmp_path, monkeypatch, capsysbinary
):
    lines, source = [f"Anna sees {n} dogs." for n in range(5)], tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in lines))
    seconds = count(0.0, 7.0)  # of every look at the clock; a log has a line every 10
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    assert run(finished_run, "--input", source, "--buffer-lines", 2) == 0
    out, err = capsysbinary.readouterr()
    assert out.decode() == "".join(f"{line}\n" for line in translator.translate(lines))
    shown = re.findall(r"^Translating \[(=+) *\] (\d) lines, [\d.]+/s$", err.decode(), re.MULTILINE)
    assert [(len(bar), done) for bar, done in shown] == [(24, "4"), (30, "5")]


def test_every_line_begins_with_its_prefix(finished_run, translator, tmp_path, monkeypatch, capsysbinary):
    source, prefixes = tmp_path / "in.txt", tmp_path / "prefixes.txt"
    lines, begun = ["Anna sleeps.", "", "Tom sleeps.", "The dog sleeps."], ["Tom", "Tom", "", "Anna"]
    source.write_text("".join(f"{line}\n" for line in lines))
    prefixes.write_text("".join(f"{prefix}\n" for prefix in begun))
    expected = [found.text for found in translator.translate_prefix(lines, begun)]
    assert expected[0].startswith("Tom") and expected[1] == "" and expected[3].startswith("Anna")
    for size in (1, 3):
        assert run(finished_run, "--input", source, "--prefixes", prefixes, "--buffer-lines", size) == 0
        assert capsysbinary.readouterr().out.decode().splitlines() == expected
    with open(source) as file:
        monkeypatch.setattr("sys.stdin", file)
        assert run(finished_run, "--prefixes", prefixes) == 0
    assert capsysbinary.readouterr().out.decode().splitlines() == expected


def test_alternatives_begin_with_the_prefix_too(finished_run, translator, tmp_path, capsysbinary):
    source, prefixes = tmp_path / "in.txt", tmp_path / "prefixes.txt"
    source.write_text("Anna sleeps.\n\n")
    prefixes.write_text("Tom\nTom\n")
    assert run(finished_run, "--input", source, "--prefixes", prefixes, "--nbest", 3) == 0
    lists = [json.loads(line)["translations"] for line in capsysbinary.readouterr().out.decode().splitlines()]
    expected = translator.translate_prefix_nbest(["Anna sleeps.", ""], ["Tom", "Tom"], 3)
    assert [[one["text"] for one in found] for found in lists] == [[one.text for one in found] for found in expected]
    assert all(one["text"].startswith("Tom") for one in lists[0])


def test_prefixes_do_not_go_with_samples(finished_run, tmp_path, capsys):
    (tmp_path / "prefixes.txt").write_text("Tom\n")
    assert run(finished_run, "--prefixes", tmp_path / "prefixes.txt", "--sample", 1) == 2
    assert "--prefixes go with a search. Received: --sample, too." in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["in.txt", "prefixes.txt"])
def test_a_prefix_too_few_or_too_many_is_an_error_after_the_others(finished_run, tmp_path, missing, capsys):
    for name in ("in.txt", "prefixes.txt"):
        (tmp_path / name).write_text("Tom\n" * (1 if name == missing else 2))
    arguments = ("--input", tmp_path / "in.txt", "--prefixes", tmp_path / "prefixes.txt")
    assert run(finished_run, *arguments) == 1
    out, err = capsys.readouterr()
    assert out.startswith("Tom") and out.count("\n") == 1
    assert f"--input and --prefixes must have the same number of lines. Received: {tmp_path / missing} ends" in err
    assert run(finished_run, *arguments, "--output", tmp_path / "prefixes.txt") == 1
    assert "must not be a file that is read" in capsys.readouterr().err


def test_the_search_can_be_changed(finished_run, tmp_path, capsysbinary):
    source = tmp_path / "in.txt"
    source.write_text("Anna sleeps.\n")
    assert run(finished_run, "--input", source, "--set", "decode.beam_width=1") == 0
    expected = Translator.load(finished_run, beam_width=1).translate(["Anna sleeps."])[0]
    assert capsysbinary.readouterr().out.decode() == expected + "\n"


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--set", "train.steps=1"], 2, "decode.FIELD=VALUE"),
        (["--set", "decode.beam_with=1"], 2, "Did you mean `beam_width`"),
        (["--set", "decode.workdir=x"], 2, "Unknown key `workdir`"),
        (["--input", "/nowhere"], 1, "No such file"),
        (["--temperature", "2"], 2, "--temperature belongs to --sample"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(finished_run, arguments, code, message, capsys):
    assert run(finished_run, *arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and err.count("\n") == 1


@pytest.mark.parametrize("seed", ["-1", str(2**62), "1_0", "x", "1" * 5000])
def test_what_is_no_seed_is_refused(finished_run, capsys, seed):
    with pytest.raises(SystemExit):
        run(finished_run, f"--sample={seed}")
    assert f"must be an integer from 0 to 2^62 - 1. Received: '{seed}'" in capsys.readouterr().err


@pytest.mark.parametrize("number, message", [("0", "a positive integer"), ("201", "at most 200")])
def test_what_is_no_number_of_hypotheses_is_refused(finished_run, capsys, number, message):
    with pytest.raises(SystemExit):
        run(finished_run, f"--nbest={number}")
    assert f"--nbest: must be {message}. Received: '{number}'" in capsys.readouterr().err


@pytest.mark.parametrize("temperature", ["-1", "nan", "inf", "1e39", "warm"])
def test_what_is_no_temperature_is_refused(finished_run, capsys, temperature):
    with pytest.raises(SystemExit):
        run(finished_run, "--sample", "1", f"--temperature={temperature}")
    assert f"must be at least 0 and finite. Received: '{temperature}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["model.keras", "config.json", "log.jsonl", "tokenizer.model", "data/train/target.values"]
)
def test_the_output_is_no_file_of_the_run(finished_run, source, tmp_path, name, capsys):
    copy = shutil.copytree(finished_run, tmp_path / "run")
    before = (copy / name).read_bytes()
    asked = [["translate", "--input", source], ["score", "--source", source, "--target", source], ["plot", "curve"]]
    for command in asked:
        assert main([*map(str, command), "--workdir", str(copy), "--output", str(copy / name)]) == 1
        assert "must not be a file that is read" in capsys.readouterr().err
    assert (copy / name).read_bytes() == before


def test_a_folder_without_a_model_is_an_error(tmp_path, capsys):
    assert run(tmp_path) == 1
    assert "model.keras" in capsys.readouterr().err


# --- as a process


@pytest.fixture
def process(finished_run):
    command = [sys.executable, "-m", "keras_transformer", "translate", "--workdir", finished_run, "--buffer-lines", "1"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}) as process:
        yield process
        process.kill()


def complaints(process):
    """What was said on standard error, without TensorFlow's own lines."""
    lines = process.stderr.read().decode().splitlines()
    return [line for line in lines if "Error" in line or "Traceback" in line]


def test_every_line_is_answered_at_once_without_a_buffer_and_ctrl_c_is_quiet(process, translator):
    for text in ("Anna sleeps.", "Tom!"):
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline().decode() == translator.translate([text])[0] + "\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert not complaints(process)


def test_a_reader_that_leaves_is_no_drama(process):
    process.stdin.write(b"Anna sleeps.\n")
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            process.stdin.write(b"Anna sleeps.\n")
            process.stdin.flush()
        except BrokenPipeError:
            break
        time.sleep(0.1)
    assert process.wait(timeout=60) == 141
    assert not complaints(process)
