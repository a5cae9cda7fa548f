"""Data diversification: which runs it is made of, what the model learns from, and that it goes on where it was."""

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
    """The commands of every stage; a translation is that of the text in capitals, and nothing is trained."""
    stages = []

    def run(jobs):
        stages.append([list(map(str, command)) for command, _ in jobs])
        for command in stages[-1]:
            if "translate" in command:
                source, output = (Path(command[command.index(name) + 1]) for name in ("--input", "--output"))
                output.write_text(source.read_text(encoding="utf-8").upper(), encoding="utf-8")

    monkeypatch.setattr(diversify, "run_together", run)
    return stages


def corpus(command):
    text = next(word for word in command if word.startswith("data.train="))
    sides = json.loads(text.removeprefix("data.train="))
    return [
        [line for name in side for line in Path(name).read_text(encoding="utf-8").split("\n")[:-1]] for side in sides
    ]


def test_the_model_learns_from_the_text_and_from_either_side_with_its_translation(recipe, ran, tmp_path):
    assert diversify.main(["--recipe", str(recipe), "--workdir", str(tmp_path / "work")]) == 0
    helpers, _, (model,) = ran
    assert [len(stage) for stage in ran] == [2, 2, 1]
    forward, backward = helpers
    assert set(diversify.HELPER) < set(forward) and [word for word in backward if word not in forward] == [
        str(tmp_path / "work" / "backward"),
        "data.reverse=true",
    ]
    english, german = ((tmp_path / f"train.{language}").read_text().split("\n")[:-1] for language in ("en", "de"))
    capitals = [[line.upper() for line in side] for side in (english, german)]
    assert corpus(model) == [[*english, *capitals[1], *english], [*german, *german, *capitals[0]]]
    assert not set(diversify.HELPER) & set(model)


def test_the_other_direction_of_a_recipe(recipe, ran, tmp_path):
    command = ["--recipe", str(recipe), "--workdir", str(tmp_path / "work"), "--set", "data.reverse=true"]
    assert diversify.main([*command, "--set", "data.max_pairs=50"]) == 0
    (_, backward), _, (model,) = ran
    assert backward[-1] == "data.reverse=false" and "data.reverse=true" in model and model[-1] == "data.max_pairs=none"
    english, german = ((tmp_path / f"train.{language}").read_text().split("\n")[:50] for language in ("en", "de"))
    capitals = [[line.upper() for line in side] for side in (english, german)]
    assert corpus(model) == [[*english, *english, *capitals[1]], [*german, *capitals[0], *german]]


def test_again_it_goes_on_where_it_was(recipe, ran, tmp_path):
    command = ["--recipe", str(recipe), "--workdir", str(tmp_path / "work")]
    assert diversify.main(command) == 0
    (tmp_path / "work" / "backward.txt").unlink()
    assert diversify.main([*command, "--in-turn"]) == 0
    again = ran[3:]
    assert [len(stage) for stage in again] == [1, 1, 1, 1]  # both helpers, to be sure; one translation; the model
    assert "translate" in again[2][0] and str(tmp_path / "work" / "backward") in again[2][0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--set", "data.valid=none"], "data.valid"),
        (["--set", "train.stepss=3"], "stepss"),
        (["--helper", "train.steps=0"], "steps"),
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
    with pytest.raises(SystemExit):
        diversify.main([*command, "--helper", "train.seed=2"])
    assert "train.seed: 1 -> 2" in capsys.readouterr().err
