"""Data diversification: which runs it is made of, what the model learns from, and that it goes on where it was."""

import gzip
import json
from pathlib import Path

import diversify
import pytest

from keras_transformer.data.demo import demo_pairs

RECIPE = """\
preset = "tiny"
[data]
train = ["train.en", "train.de"]
valid = ["valid.en", "valid.de"]
vocab_size = 300
[model]
d_model = 16
d_ff = 32
[train]
steps = 6
cooldown_steps = 0
tokens_per_batch = 512
xla = false
export = false
[decode]
beam_width = 1
extra_length = 3
"""
FEW = ["--helper", "train.steps=4", "--helper", "train.cooldown_steps=2"]


@pytest.fixture
def recipe(tmp_path):
    for split, number in (("train", 120), ("valid", 10)):
        for language, lines in zip(("en", "de"), zip(*demo_pairs(split, number), strict=True), strict=True):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def ran(monkeypatch):
    """The commands of every stage; a translation is the text in capitals, and nothing is trained."""
    stages = []

    def run(jobs):
        stages.append([list(map(str, command)) for command, _ in jobs])
        for command in stages[-1]:
            if "translate" in command:
                assert "decode.max_input_length=256" in command
                source, output = (Path(command[command.index(name) + 1]) for name in ("--input", "--output"))
                output.write_text(source.read_text(encoding="utf-8").upper(), encoding="utf-8")

    monkeypatch.setattr(diversify, "run_together", run)
    return stages


def setting(command, name):
    """Of several the last one counts."""
    return [word for word in command if word.startswith(f"{name}=")][-1].removeprefix(f"{name}=")


def corpus(command):
    sides = json.loads(setting(command, "data.train"))
    return [[line for name in side for line in lines(name)] for side in sides]


def lines(path):
    return Path(path).read_text(encoding="utf-8").split("\n")[:-1]


def capitals(side):
    return [line.upper() for line in side]


def test_the_model_learns_from_the_text_and_from_either_side_with_its_translation(recipe, ran, tmp_path):
    assert diversify.main(["--recipe", str(recipe), "--workdir", str(tmp_path / "work")]) == 0
    helpers, _, (model,) = ran
    assert [len(stage) for stage in ran] == [2, 2, 1]
    english, german = (lines(tmp_path / f"train.{language}") for language in ("en", "de"))
    for helper, is_reversed in zip(helpers, ("false", "true"), strict=True):
        assert set(diversify.HELPER) < set(helper) and setting(helper, "data.reverse") == is_reversed
        assert corpus(helper) == [english, german]
    assert corpus(model) == [[*english, *capitals(german), *english], [*german, *german, *capitals(english)]]
    assert not set(diversify.HELPER) & set(model) and "data.reverse" not in " ".join(model)


def test_the_other_direction_of_a_recipe(recipe, ran, tmp_path):
    command = ["--recipe", str(recipe), "--workdir", str(tmp_path / "work"), "--set", "data.reverse=true"]
    assert diversify.main([*command, "--set", "data.max_pairs=50"]) == 0
    helpers, _, (model,) = ran
    assert [setting(helper, "data.reverse") for helper in helpers] == ["true", "false"]
    assert setting(model, "data.reverse") == "true" and setting(model, "data.max_pairs") == "none"
    english, german = (lines(tmp_path / f"train.{language}")[:50] for language in ("en", "de"))
    assert corpus(model) == [[*english, *english, *capitals(german)], [*german, *capitals(english), *german]]


def test_text_that_is_no_pair_of_files_and_brings_its_other_sets_along(recipe, ran, tmp_path):
    command = ["--recipe", str(recipe), "--workdir", str(tmp_path / "work"), "--set", "data.max_pairs=30"]
    assert diversify.main([*command, "--set", "data.train=demo", "--set", "data.valid=none"]) == 0
    for training in (*ran[0], *ran[2]):
        assert [setting(training, f"data.{split}") for split in ("valid", "test")] == ['"demo"', '"demo"']
    assert [len(side) for side in corpus(ran[2][0])] == [90, 90]


def test_text_that_is_packed_or_in_columns(recipe, ran, tmp_path, monkeypatch):
    english, german = (lines(tmp_path / f"train.{language}") for language in ("en", "de"))
    with gzip.open(tmp_path / "packed.en.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in english)
    pairs = "".join(f"{source}\t{target}\tmore\n" for source, target in zip(english, german, strict=True))
    (tmp_path / "columns.tsv").write_text(pairs, encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # names that are given here are not the recipe's
    for number, corpus_setting in enumerate(('["packed.en.gz", "train.de"]', '"columns.tsv"')):
        workdir = Path(f"work{number}")
        command = ["--recipe", "recipe.toml", "--workdir", str(workdir), "--set", f"data.train={corpus_setting}"]
        assert diversify.main(command) == 0
        assert (lines(workdir / "source.txt"), lines(workdir / "target.txt")) == (english, german)
        [model] = ran[-1]
        assert corpus(model) == [[*english, *capitals(german), *english], [*german, *german, *capitals(english)]]
        assert all(Path(name).is_absolute() for side in json.loads(setting(model, "data.train")) for name in side)


def test_again_it_goes_on_where_it_was(recipe, ran, tmp_path):
    work = tmp_path / "work"
    command = ["--recipe", str(recipe), "--workdir", str(work)]
    assert diversify.main(command) == 0
    (work / "backward.txt").rename(work / "backward.partial")  # all of it, and then it was interrupted
    (work / "forward.txt").rename(work / "forward.partial")
    with open(work / "forward.partial", "a") as file:
        file.truncate((work / "source.txt").stat().st_size // 2)
    assert diversify.main([*command, "--in-turn"]) == 0
    again = ran[3:]
    assert [len(stage) for stage in again] == [1, 1, 1, 1]  # both helpers, to be sure; one translation; the model
    assert "translate" in again[2][0] and str(work / "forward") in again[2][0]
    assert not list(work.glob("*.partial")) and lines(work / "forward.txt") == capitals(lines(work / "source.txt"))


def test_a_folder_that_was_made_otherwise_keeps_its_text(recipe, ran, tmp_path):
    work = tmp_path / "work"
    command = ["--recipe", str(recipe), "--workdir", str(work)]
    assert diversify.main(command) == 0
    before = lines(work / "source.txt")
    own = json.dumps([str(work / "source.txt"), str(work / "target.txt")])
    for other in (["--set", "data.max_pairs=5"], ["--helper", "train.steps=9000"], ["--set", f"data.train={own}"]):
        with pytest.raises(SystemExit, match="was made with another"):
            diversify.main([*command, *other])
    assert lines(work / "source.txt") == before and len(ran) == 3


@pytest.mark.parametrize("name", ["source.txt", "model"])
def test_a_folder_of_something_else_is_left_as_it_is(recipe, ran, tmp_path, name):
    work = tmp_path / "work"
    work.mkdir()
    (work / name).write_text("my own")
    with pytest.raises(SystemExit, match=f"holds {name}, and no plan.json"):
        diversify.main(["--recipe", str(recipe), "--workdir", str(work)])
    assert (work / name).read_text() == "my own" and not (work / "plan.json").exists()


def test_a_translation_that_is_too_short_is_no_translation(recipe, tmp_path, monkeypatch):
    def half(jobs):
        for command, _ in jobs:
            if "translate" in command:
                Path(command[command.index("--output") + 1]).write_text("a line\n")

    monkeypatch.setattr(diversify, "run_together", half)
    with pytest.raises(SystemExit, match="Every line of source.txt"):
        diversify.main(["--recipe", str(recipe), "--workdir", str(tmp_path / "work")])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--set", "data.valid=none"], "data.valid"),
        (["--set", "train.cooldown_steps=7"], "cooldown_steps"),  # of the model alone
        (["--set", "train.stepss=3"], "stepss"),
        (["--helper", "train.steps=0"], "steps"),
        (["--helper", "data.max_pairs=500"], "Received: data.max_pairs=500"),  # it would be overridden
        (["--set", "data.train=['a.en','a.de']"], "a.en"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(recipe, ran, tmp_path, wrong, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        diversify.main(["--recipe", str(recipe), "--workdir", str(tmp_path / "work"), *wrong])
    assert said in capsys.readouterr().err + str(stopped.value) and not ran


@pytest.mark.slow
def test_the_whole_of_it(recipe, tmp_path, capsys):
    workdir = tmp_path / "work"
    command = ["--recipe", str(recipe), "--workdir", str(workdir), *FEW]
    assert diversify.main(command) == 0
    assert (workdir / "model" / "model.keras").exists()
    store = json.loads((workdir / "model" / "config.json").read_text())["data"]["train"]
    assert [[Path(name).name for name in side] for side in store] == [
        ["source.txt", "backward.txt", "source.txt"],
        ["target.txt", "target.txt", "forward.txt"],
    ]
    assert "360 pairs read" in (workdir / "model.log").read_text()
    times = {path: path.stat().st_mtime_ns for path in workdir.rglob("*.keras")}
    assert diversify.main(command) == 0  # again: everything is there
    assert times == {path: path.stat().st_mtime_ns for path in workdir.rglob("*.keras")}
    assert "The model is" in capsys.readouterr().out
