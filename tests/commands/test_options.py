"""Options that several commands have."""

import argparse
import json

import pytest

from keras_transformer.commands import evaluate
from keras_transformer.commands.options import WORKDIR, add_workdir, files_of_runs, load_translator
from keras_transformer.config import ConfigError
from keras_transformer_cli.options import add_decode, add_ensemble


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_workdir(parser)
    add_ensemble(parser)
    add_decode(parser)
    return parser.parse_args(arguments)


def test_the_run_of_whoever_names_none_is_the_demo():
    assert parsed().workdir == WORKDIR == "runs/demo"


def test_the_home_folder_is_found_where_no_shell_has_put_it(monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    assert parsed("--workdir=~/runs/a").workdir == "/home/anna/runs/a"


def test_a_folder_without_a_name_is_none(capsys):
    with pytest.raises(SystemExit):
        parsed("--workdir", "")
    assert "argument --workdir: must be a folder. Received: ''" in capsys.readouterr().err


def test_a_file_without_a_name_is_none(capsys):
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    for option in ("--source", "--reference", "--hypotheses", "--other", "--output", "--json", "--html"):
        with pytest.raises(SystemExit):
            parser.parse_args([option, ""])
        assert f"argument {option}: must be a file. Received: ''" in capsys.readouterr().err


def test_further_runs_may_be_named_together_or_one_by_one():
    assert parsed().ensemble == []
    assert parsed("--ensemble", "a", "b", "--ensemble", "c").ensemble == ["a", "b", "c"]


def test_the_search_of_a_finished_run_can_be_changed_and_nothing_else(finished_run):
    changes = ("--set", "decode.alpha=1", "--set", "decode.beam_width=2")
    decode = load_translator(parsed("--workdir", str(finished_run), *changes)).decode
    assert (decode.alpha, decode.beam_width) == (1.0, 2)
    with pytest.raises(ConfigError, match=r"decode.FIELD=VALUE .* Received: model"):
        load_translator(parsed("--workdir", str(finished_run), "--set", "model.d_model=3"))


def test_an_output_may_have_the_name_of_a_text_that_a_packed_model_was_trained_on(tmp_path):
    packed = {"data": {"train": ["a.en", "a.de"], "test": ["test.en", "test.de"]}, "model": {}, "decode": {}}
    (tmp_path / "config.json").write_text(json.dumps(packed))
    assert {"test.en", "test.de"} <= names(tmp_path) and not {"a.en", "a.de"} & names(tmp_path)
    of_run = {**packed, "data": {**packed["data"], "tokenizer_model": "a.model"}, "train": {}}
    (tmp_path / "config.json").write_text(json.dumps(of_run))  # which reads them again
    assert {"test.en", "test.de", "a.en", "a.de", "a.model"} <= names(tmp_path)


def test_no_output_may_have_the_name_of_anything_that_a_run_holds(tmp_path):
    data = {"train": ["a.en", "a.de"], "valid": "valid.tsv", "test": "test.tsv"}
    (tmp_path / "config.json").write_text(json.dumps({"data": data, "train": {}}))
    parts = ["data/train/source.values", "checkpoints/best.npz", "export/1/saved_model.pb", "source.model"]
    for part in parts:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).touch()
    of_run = [*parts, "config.json", "model.keras", "model.json", "log.jsonl", "lock"]
    assert {tmp_path / part for part in of_run} <= set(files_of_runs(tmp_path))
    assert {"a.en", "a.de", "valid.tsv", "test.tsv"} <= names(tmp_path)


def names(workdir):
    return {path.name for path in files_of_runs(workdir)}
