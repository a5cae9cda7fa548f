"""The ablation: which commands a row is made by, what its table says, and that a finished row is not trained again."""

import json

import ablation
import pytest

SIGNATURE = "nrefs:1|tok:none"


def finished(name, seed, test, difference=None, interval=None):
    changes = [*ablation.CHANGES[name], f"train.seed={seed}", "train.export=false"]
    split = {"bleu": test, "signature": SIGNATURE, "difference": difference, "interval": interval}
    return {
        "config": ablation.load_recipe(ablation.RECIPE, changes).to_dict(),
        "valid": split,
        "test": split,
        "weights": {"last": 1.0},
        "taken": "last",
        "minutes": 30.0,
    }


def put(workdir, name, seed, *figures):
    folder = workdir / f"{name}-{seed}"
    folder.mkdir(parents=True)
    (folder / "ablation.json").write_text(json.dumps(finished(name, seed, *figures)))


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.setattr(ablation, "run_logged", lambda command, folder: pytest.fail(f"it ran {command}"))


def test_every_change_is_a_setting_that_exists_and_changes_something():
    recipes = {str(ablation.load_recipe(ablation.RECIPE, changes)) for changes in ablation.CHANGES.values()}
    assert len(recipes) == len(ablation.CHANGES)  # so none changes nothing
    assert ablation.CHANGES[ablation.BASE] == ()


def test_one_seed_has_the_interval_of_the_bootstrap(tmp_path, nothing_runs, capsys):
    put(tmp_path, "recipe", 1, 40.0)
    put(tmp_path, "post_norm", 1, 39.0, -1.0, [-1.5, -0.5])
    assert ablation.main(["--workdir", str(tmp_path), "--rows", "post_norm"]) == 0
    text = (tmp_path / "ablation.md").read_text()
    assert "| recipe |  | 40.00 | 40.00 |  | 30 |" in text and SIGNATURE in text and "paired bootstrap" in text
    assert "| post_norm | model.norm=post | 39.00 | 39.00 | -1.00 (-1.50 to -0.50) | 30 |" in text
    assert text in capsys.readouterr().out
    assert json.loads((tmp_path / "ablation.json").read_text())["rows"]["post_norm"][0]["test"]["bleu"] == 39.0


def test_several_seeds_have_their_mean_and_the_interval_of_students_t(tmp_path, nothing_runs):
    for seed, difference in ((1, -1.0), (2, -2.0), (3, -3.0)):
        put(tmp_path, "recipe", seed, 40.0)
        put(tmp_path, "ema", seed, 40.0 + difference, difference, [-9.0, 9.0])
    assert ablation.main(["--workdir", str(tmp_path), "--rows", "ema", "--seeds", "1", "2", "3"]) == 0
    margin = 4.30 * 1.0 / 3**0.5
    expected = f"| 38.00 | 38.00 | -2.00 ({-2 - margin:+.2f} to {-2 + margin:+.2f}) |"
    assert expected in (tmp_path / "ablation.md").read_text()


def test_a_series_that_is_interrupted_speaks_of_the_seeds_it_has(tmp_path, monkeypatch):
    put(tmp_path, "recipe", 5, 40.0)
    put(tmp_path, "ema", 5, 39.0, -1.0, [-1.5, -0.5])
    monkeypatch.setattr(ablation, "run_logged", lambda command, folder: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ablation.main(["--workdir", str(tmp_path), "--rows", "ema", "--seeds", "5", "6"])
    text = (tmp_path / "ablation.md").read_text()
    assert "at a time, seed 5." in text and "paired bootstrap" in text and "Student" not in text
    assert json.loads((tmp_path / "ablation.json").read_text())["seeds"] == [5]


def test_a_row_is_trained_scored_on_both_sets_and_compared_with_the_recipe_of_its_seed(tmp_path, monkeypatch):
    ran = []

    def run(command, folder):
        ran.append(list(map(str, command)))
        folder.mkdir(exist_ok=True)
        (folder / "model.json").write_text(json.dumps({"validation": {"last": {"bleu": 3.0}}, "weights": "last"}))
        (folder / "log.jsonl").write_text('{"kind": "train", "step": 9, "seconds": 90.0}\n')
        difference = {"name": "BLEU", "difference": -0.5, "interval": [-1.0, 0.0]}
        scores = {"scores": {"bleu": {"value": 7.0, "signature": SIGNATURE}}, "differences": [difference]}
        for split in ablation.SPLITS:
            (folder / f"{split}.json").write_text(json.dumps(scores))

    monkeypatch.setattr(ablation, "run_logged", run)
    found = ablation.result("post_norm", 5, ["train.steps=9", "train.cooldown_steps=0"], tmp_path)
    assert found["test"] == {"bleu": 7.0, "signature": SIGNATURE, "difference": -0.5, "interval": [-1.0, 0.0]}
    assert (found["weights"], found["taken"], found["minutes"]) == ({"last": 3.0}, "last", 1.5)
    train, *evaluations = ran
    assert {"train.steps=9", "model.norm=post", "train.seed=5"} <= set(train)
    assert [command[command.index("--other") + 1] for command in evaluations] == [
        str(tmp_path / "recipe-5" / f"{split}.txt") for split in ablation.SPLITS
    ]
    monkeypatch.setattr(ablation, "run_logged", None)
    assert ablation.result("post_norm", 5, ["train.steps=9", "train.cooldown_steps=0"], tmp_path) == found
    with pytest.raises(SystemExit, match="train.steps"):
        ablation.result("post_norm", 5, [], tmp_path)


def test_what_scores_the_rows_is_theirs(capsys):
    with pytest.raises(SystemExit):
        ablation.main(["--set", "data.reverse=true"])
    assert "Received: data.reverse=true" in capsys.readouterr().err


def test_what_no_row_could_have_is_refused_at_once(tmp_path, capsys):
    (tmp_path / "file").touch()
    for wrong, said in ((["--seeds", "-1"], "seed=-1"), (["--workdir", str(tmp_path / "file")], "File exists")):
        with pytest.raises(SystemExit):
            ablation.main(["--workdir", str(tmp_path), *wrong])
        assert said in capsys.readouterr().err


def test_seeds_are_few_and_different(capsys):
    for seeds in (["1", "1"], list("123456")):
        with pytest.raises(SystemExit):
            ablation.main(["--seeds", *seeds])
        assert "different numbers" in capsys.readouterr().err
