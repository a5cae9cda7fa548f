"""The options of training."""

import argparse
import json
import os
import re
import shlex
import shutil
from functools import partial

import pytest

from keras_transformer import ConfigError, preset
from keras_transformer.commands import train
from keras_transformer.training import trainer
from keras_transformer.training.workdir import Workdir
from keras_transformer.translator import Translator
from keras_transformer_cli.errors import exit_code_of


def options(*arguments):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return parser.parse_args(arguments)


def test_nothing_at_all_is_the_demo():
    assert train.configure(options()) == preset("demo")
    assert train.configure(options("--set", "data.buckets=3")) == preset("demo").replace(data=dict(buckets=3))


def test_text_of_ones_own_is_trained_with_tiny_and_found_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = train.configure(options("--set", 'data.train=["a.en","a.de"]'))
    assert config == preset("tiny").replace(data=dict(train=[str(tmp_path / "a.en"), str(tmp_path / "a.de")]))


def test_a_preset_or_a_recipe_is_taken_as_it_is(tmp_path):
    assert train.configure(options("--set", "preset=base")) == preset("base")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('preset = "small"\n[data]\ntrain = "demo"\n[train]\nsteps = 7\n')
    assert train.configure(options("--recipe", str(recipe))) == preset("small").replace(train=dict(steps=7))


def test_a_recipe_names_its_text(tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[data]\nvocab_size = 500\n")
    with pytest.raises(ConfigError, match=r"must name its text.*recipe\.toml"):
        train.configure(options("--recipe", str(recipe), "--set", "data.buckets=3"))
    for setting in ("data.train=demo", "preset=demo", "data.train=text.tsv"):
        config = train.configure(options("--recipe", str(recipe), "--set", setting, "--set", "data.buckets=3"))
        assert config.data.vocab_size == 500


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--set", "model.d_moddel=3"], 2, "Did you mean `d_model`"),
        (["--set", "train.steps=-1"], 2, "at least 1"),
        (["--set", "train.steps"], 2, "section.field=value"),
        (["--recipe", "nowhere.toml"], 2, "nowhere.toml"),
        (["--set", 'data.train=["nowhere.en","nowhere.de"]'], 1, "nowhere.en"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, capsys, arguments, code, message):
    assert exit_code_of(train.run, options("--workdir", str(tmp_path / "run"), *arguments)) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said


def test_text_of_ones_own_does_not_go_where_the_demo_is(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert exit_code_of(train.run, options("--set", 'data.train=["a.en","a.de"]')) == 2
    assert "--workdir FOLDER" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_finished_run_is_exported_once_and_the_export_translates(finished_run, tmp_path, capsys):
    workdir = tmp_path / "run"
    shutil.copytree(finished_run, workdir)
    config = Workdir(workdir).load_config()
    train.deliver(workdir, config.replace(train={"export": True}))
    said = capsys.readouterr().out
    shown = re.findall(r"^    (.+)\n      -> (.*)\n", said, re.MULTILINE)
    texts, translations = zip(*shown, strict=True)
    assert list(translations) == Translator.load(workdir).translate(texts) and len(set(translations)) > 1
    assert said.count("      -> ") == len(set(texts)) == 5 and str(workdir / "export" / "1") in said
    assert (workdir / "export" / "1" / "saved_model.pb").exists()
    written = {path.name: path.read_bytes() for path in (workdir / "export" / "serving").iterdir()}
    shutil.rmtree(workdir / "export" / "serving")  # as if killed after the version was there
    train.deliver(workdir, config.replace(train={"export": True}))
    assert "      -> " not in capsys.readouterr().out
    assert not (workdir / "export" / "2").exists()
    assert {path.name: path.read_bytes() for path in (workdir / "export" / "serving").iterdir()} == written
    models = workdir / "export" / "serving" / "models.config"
    models.write_text("# mine")
    renamed = workdir.rename(tmp_path / "renamed")
    models = renamed / models.relative_to(workdir)
    train.deliver(renamed, config.replace(train={"export": True}))  # they are newer than the version
    assert models.read_text() == "# mine"
    shutil.copytree(renamed, tmp_path / "copied", copy_function=shutil.copyfile)  # every file is new
    models.write_text('model_config_list { config { name: "run" } }')
    done = config.replace(train={"export": True})
    hooks = dict(deliver=partial(train.deliver, renamed, done), check=partial(train.check, renamed, done))
    assert trainer.train(done, renamed, **hooks).step == 14
    for changes in (dict(train={"steps": 15}), dict(decode={"beam_width": 2})):
        with pytest.raises(ValueError, match="must have the model that its folder names"):
            trainer.train(done.replace(**changes), renamed, **hooks)
    assert train._exported(tmp_path / "copied") == tmp_path / "copied" / "export" / "1"
    told = tmp_path / "copied" / "export" / "1" / "assets.extra" / "metadata.json"
    before = told.read_text()
    told.write_text(json.dumps({**json.loads(before), "ensemble": [{"model": None}]}))  # the run's with another
    assert train._exported(tmp_path / "copied") is None
    told.write_text(before)
    metadata = tmp_path / "copied" / "model.json"
    metadata.write_text(metadata.read_text().replace('"step": 14', '"step": 15'))
    assert train._exported(tmp_path / "copied") is None
    models.write_text("# mine")
    os.utime(models, (0, 0))  # as if killed before it was renewed for the version
    train.deliver(renamed, config.replace(train={"export": True}))
    assert 'name: "renamed"' in models.read_text()


def test_a_run_whose_export_would_be_refused_does_not_begin(tmp_path, capsys):
    models = tmp_path / "renamed" / "export" / "serving" / "models.config"
    models.parent.mkdir(parents=True)
    models.write_text('model_config_list { config { name: "run" } }')
    asked = options("--workdir", str(tmp_path / "renamed"), "--set", "train.export=true")
    assert exit_code_of(train.run, asked) == 1
    assert "must have the model that its folder names, renamed. Received: run" in capsys.readouterr().err
    assert os.listdir(tmp_path / "renamed") == ["export"]


@pytest.mark.parametrize("newest", [1, 2])
def test_only_the_newest_version_can_be_that_of_the_finished_model(tmp_path, newest):
    (tmp_path / "model.json").write_text('{"step": 14}')
    for version in (1, 2):
        told = tmp_path / "export" / str(version) / "assets.extra" / "metadata.json"
        told.parent.mkdir(parents=True)
        told.write_text(json.dumps({"model": {"step": 14 if version == newest else 7}}))
    assert train._exported(tmp_path) == (tmp_path / "export" / "2" if newest == 2 else None)


def test_what_only_looks_like_a_version_is_no_export_of_the_run(tmp_path):
    assert train._exported(tmp_path) is None
    (tmp_path / "export" / "007").mkdir(parents=True)
    (tmp_path / "export" / "9").touch()
    assert train._exported(tmp_path) is None


def test_a_run_that_asks_for_no_export_has_none(finished_run, capsys):
    train.deliver(finished_run, Workdir(finished_run).load_config())
    assert not (finished_run / "export").exists()
    said = capsys.readouterr().out
    assert "keras-transformer translate" in said and "export.serve" not in said


@pytest.mark.parametrize(
    "data, export, expected",
    [
        ({}, True, ["translate", "evaluate", "export.serve", "keras-transformer train"]),
        ({"train": ["a.en", "a.de"]}, True, ["translate", "export.serve"]),
        ({"train": ["a.en", "a.de"], "test": "b.tsv"}, False, ["translate", "evaluate"]),
    ],
)
def test_what_to_try_next_is_what_the_run_allows(data, export, expected):
    config = preset("demo").replace(data=data, train=dict(export=export))
    commands = [command for command, _ in train.hints("runs/a", config)]
    assert all(name in command for name, command in zip(expected, commands, strict=True))


def test_what_to_try_next_can_be_pasted():
    commands = [command for command, _ in train.hints("runs/my run", preset("demo"))]
    assert shlex.split(commands[0])[-1] == "runs/my run" and "--model 'runs/my run'/export" in commands[2]
