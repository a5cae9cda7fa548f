"""A run from a configuration to a finished model, in one process."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from fnmatch import fnmatch
from posixpath import dirname, join
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import ConfigError, Transformer, model_folder
from keras_transformer.data.sources import DataError
from keras_transformer.training.checkpoints import Checkpoints, average_weights, read_arrays, write_arrays
from keras_transformer.training.journal import read_log
from keras_transformer.training.origin import load_origin
from keras_transformer.training.step import Trainee
from keras_transformer.training.trainer import Training, complete, train
from keras_transformer.training.validation import Judge
from keras_transformer.training.workdir import Workdir, WorkdirError
from keras_transformer.translator import Translator
from tests.integration.runs import ROOT
from tests.training.runs import configuration, new_run


def test_a_finished_run_holds_what_the_readme_says(finished_run):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.search(r"^A workdir holds:\n\n(.*?)\n\n", readme, re.DOTALL | re.MULTILINE)[1]
    patterns = set()
    for names, meaning in re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE):
        names, others = re.findall(r"`([^`]+)`", names), re.findall(r"`(\w+\.(?:npz|model))`", meaning)
        patterns |= {*names, *(join(dirname(names[0]), name) for name in others)}

    def stands_for(pattern, file):
        is_folder = pattern.endswith("/")
        return fnmatch(file, pattern + "*" * is_folder) and (is_folder or file.count("/") == pattern.count("/"))

    files = [path.relative_to(finished_run).as_posix() for path in finished_run.rglob("*") if path.is_file()]
    assert not [file for file in files if not any(stands_for(pattern, file) for pattern in patterns)]
    missing = {pattern for pattern in patterns if not any(stands_for(pattern, file) for file in files)}
    assert missing == {
        "*.partial", "*.partial.keras", "checkpoints/interrupted.npz", "data/held_out.*", "export/1/",
        "source.model", "target.model",
    }  # fmt: skip  # a run that was not interrupted, has one vocabulary and a validation set, and does not export
    records = read_log(finished_run / "log.jsonl")
    assert [r["step"] for r in records if r["kind"] == "valid"] == [7, 14]
    assert [r["step"] for r in records if r["kind"] == "train"] == [5, 10, 14]


def test_the_finished_model_is_the_best_of_the_candidates(finished_run):
    metadata = json.loads((finished_run / "model.json").read_text())
    validation = metadata["validation"]
    assert set(validation) == {"average of 2", "moving average", "last", "best"}
    best = max(validation, key=lambda name: (validation[name]["bleu"], -validation[name]["perplexity"]))
    assert metadata["weights"] == best
    assert metadata["step"] == 14 and metadata["test"]["num_sentences"] == 1000
    assert metadata["parameters"] == Translator.load(finished_run).model.count_params()


def test_the_report_of_the_test_set_is_written_beside_the_model(finished_run):
    metadata = json.loads((finished_run / "model.json").read_text())
    found = json.loads((finished_run / "report.json").read_text())
    assert found["scores"] == metadata["test"]
    page = (finished_run / "report.html").read_text()
    assert (
        f"{found['scores']['bleu']['value']:.2f}" in page and "data:image/png" in page and "Attention in line" in page
    )


def test_the_finished_model_has_the_weights_that_its_metadata_names(finished_run):
    metadata = json.loads((finished_run / "model.json").read_text())
    checkpoints = sorted((finished_run / "checkpoints").glob("step-*.npz"))
    weights = {
        "average of 2": lambda: average_weights(checkpoints[-2:]),
        "moving average": lambda: average_weights(checkpoints[-1:], "average"),
        "last": lambda: average_weights(checkpoints[-1:]),
        "best": lambda: average_weights([finished_run / "checkpoints" / "best.npz"], "average"),
    }[metadata["weights"]]()
    for variable in Translator.load(finished_run).model.trainable_variables:
        np.testing.assert_array_equal(variable.numpy(), weights[variable.path])


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="needs a sacreBLEU without Japanese")
def test_scores_that_could_not_be_computed_are_refused_before_a_run_begins(tmp_path):
    with pytest.raises(ValueError, match="sacreBLEU's tokenizer 'ja-mecab' cannot be used here"):
        train(configuration(**{"data.bleu_tokenizer": "ja-mecab"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_without_progress_stops_early_and_is_finished(tmp_path, capsys):
    config = configuration(**{"train.valid_steps": 1, "train.patience": 2, "train.learning_rate_scale": 1e-30})
    result = train(config, tmp_path)
    assert result.exit_code == 0
    assert result.step == 3  # the best at 1, then two without progress
    assert (tmp_path / "model.keras").exists()
    assert train(config, tmp_path).step == 3  # again: there is nothing left to do
    capsys.readouterr()
    longer = config.replace(train=dict(steps=12))
    assert train(longer, tmp_path).step == 3
    assert "was stopped by train.patience=2" in capsys.readouterr().out
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for path in (checkpoints.interrupted_path, *checkpoints.regular()):
        path.unlink()
    before = (tmp_path / "log.jsonl").read_bytes()
    assert train(longer, tmp_path).step == 3 and (tmp_path / "log.jsonl").read_bytes() == before
    best = checkpoints.best_path.rename(tmp_path / "best.npz")
    assert train(longer, tmp_path).step == 3
    for patience in (3, None):
        with pytest.raises(WorkdirError, match=f"Going on after step 3.*needs a checkpoint.*train.patience={patience}"):
            train(longer.replace(train=dict(patience=patience)), tmp_path)
    best.rename(checkpoints.best_path)
    assert train(longer.replace(train=dict(patience=3)), tmp_path).step == 4  # from the best one, at step 1


def test_what_would_be_in_vain_is_checked_before_a_run_begins_or_goes_on(finished_run, tmp_path):
    def refuse():
        raise KeyError("in vain")

    folder, config = shutil.copytree(finished_run, tmp_path / "run"), Workdir(finished_run).load_config()
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    assert train(config, folder, check=refuse).step == 14  # there is nothing to do
    for changes in (dict(train=dict(steps=15)), dict(decode=dict(beam_width=2))):
        with pytest.raises(KeyError, match="in vain"):
            train(config.replace(**changes), folder, check=refuse)
    assert before == {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    with pytest.raises(KeyError, match="in vain"):
        train(config, tmp_path / "new", check=refuse)
    assert not (tmp_path / "new").exists()


def test_bfloat16_trains_and_leaves_a_model_in_float32(tmp_path):
    workdir = Workdir(tmp_path)
    settings = {"train.precision": "mixed_bfloat16", "train.steps": 40, "train.warmup_steps": 10}
    run = new_run(configuration(**settings), workdir)
    assert complete(run).exit_code == 0
    workdir.unlock()
    assert {layer.compute_dtype for layer in run.trainee.transformer._flatten_layers()} == {"bfloat16"}
    losses = [r["loss"] for r in read_log(tmp_path / "log.jsonl") if r["kind"] == "train"]
    assert np.isfinite(losses).all() and losses[-1] < 0.9 * losses[0]
    model = Translator.load(tmp_path).model
    assert {layer.compute_dtype for layer in model._flatten_layers()} == {"float32"}
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


def test_two_text_files_are_enough(tmp_path):
    lines = [f"one two {i}\tein zwei {i}" for i in range(200)]
    for column, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(line.split("\t")[column] + "\n" for line in lines))
    corpus = json.dumps([str(tmp_path / "a.en"), str(tmp_path / "a.de")])
    assert train(configuration(**{"preset": "tiny", "data.train": corpus}), tmp_path / "run").exit_code == 0
    assert json.loads((tmp_path / "run" / "model.json").read_text())["test"] is None


def test_languages_can_have_a_vocabulary_each(tmp_path):
    config = configuration(**{"data.shared_vocab": "false", "model.tied_embeddings": "target"})
    assert train(config, tmp_path).exit_code == 0
    translator = Translator.load(tmp_path)
    assert translator.tokenizers.source.model_hash != translator.tokenizers.target.model_hash
    assert len(translator.translate(["the dog sleeps"])) == 1
    with pytest.raises(ConfigError, match="data.reverse: False -> True"):
        load_origin(tmp_path, config.replace(data=dict(reverse=True)))
    with pytest.raises(ConfigError, match="one vocabulary for both"):
        configuration(**{"data.shared_vocab": "false"})


class Trained(Exception):  # noqa: N818
    """Instead of training."""


@pytest.fixture
def untrained(tmp_path, monkeypatch):
    """A run, and what it does with its trainee: the shapes of its batches in warming up, and that it fits."""
    calls = []

    def fit(trainee, batches, **options):
        calls.append("fit")
        raise Trained

    def run_sums(trainee, batch):
        calls.append((*batch.inputs.source_ids.shape, batch.labels.shape[1]))

    monkeypatch.setattr(Trainee, "_run_sums", run_sums)
    monkeypatch.setattr(Trainee, "fit", fit)
    run = new_run(configuration(**{"train.xla": "true"}), Workdir(tmp_path))
    yield run, calls
    run.workdir.unlock()


def test_what_is_said_after_training_has_a_line_of_its_own(untrained):
    cleared = []
    training = Training(untrained[0], None)
    training.journal = SimpleNamespace(begin=lambda: None, clear_line=lambda: cleared.append("line"))
    with pytest.raises(Trained):
        training.go_on()
    assert cleared == ["line"]


def test_a_batch_of_every_shape_is_run_before_the_first_step(untrained, capsys):
    run, calls = untrained
    with pytest.raises(Trained):
        complete(run)
    *shapes, last = calls
    assert sorted(shapes) == sorted(run.plan.shapes) and len(shapes) > 1 and last == "fit"
    assert f"{len(run.plan.shapes)} shapes of batches, each compiled by XLA once: 0:0" in capsys.readouterr().out


def test_a_batch_that_does_not_fit_into_memory_ends_the_run_before_the_first_step(untrained, monkeypatch):
    run, calls = untrained
    run_sums = Trainee._run_sums

    def run_out(trainee, batch):
        run_sums(trainee, batch)
        if len(calls) == 2:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(Trainee, "_run_sums", run_out)
    with pytest.raises(MemoryError, match="does not fit .*Lower train.tokens_per_batch") as caught:
        complete(run)
    _, (rows, *lengths) = calls
    assert str(caught.value).startswith(f"A batch of {rows} rows, {lengths[0]} x {lengths[1]} pieces, does")


@pytest.mark.parametrize("changes", [{"name": "mine"}, {"trainable": False}])
def test_a_run_can_begin_with_a_model_that_was_saved_otherwise(finished_run, tmp_path, changes):
    (config, tokenizers, model), saved = model_folder.load(finished_run), tmp_path / "saved"
    other = Transformer.from_config({**model.get_config(), **changes})
    other.set_weights(model.get_weights())
    model_folder.write(saved, {name: config.to_dict()[name] for name in model_folder.SECTIONS}, tokenizers, other)
    found = {"start_from": str(saved), "steps": 1, "learning_rate_scale": 1e-9}
    assert train(config.replace(train=found), tmp_path / "run").step == 1
    begun = Translator.load(tmp_path / "run").model
    for old, new in zip(model.weights, begun.weights, strict=True):
        np.testing.assert_allclose(new.numpy(), old.numpy(), atol=1e-6, err_msg=new.path)


def test_a_run_can_begin_with_the_weights_of_another_one(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert train(configuration(), first).exit_code == 0
    changes = {
        "train.start_from": str(first), "train.steps": 2, "train.checkpoint_steps": 1, "model.dropout": 0.1,
        "train.learning_rate_scale": 1e-9, "data.max_pairs": 200, "data.vocab_size": 500,
    }  # fmt: skip
    config = configuration(**changes)
    assert train(config, second).exit_code == 0
    assert (second / "tokenizer.model").read_bytes() == (first / "tokenizer.model").read_bytes()
    before, after = (Translator.load(folder).model.trainable_variables for folder in (first, second))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new.numpy(), old.numpy(), atol=1e-6, err_msg=new.path)
    average = average_weights([second / "checkpoints" / "step-00000002.npz"], "average")
    np.testing.assert_allclose(average[new.path], new.numpy(), atol=1e-6)
    shutil.rmtree(first)
    longer = config.replace(train=dict(steps=3))
    assert train(longer, second).step == 3  # it is not needed any more


def test_changed_text_is_refused_before_anything_is_overwritten(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("".join(f"{name} one two {i}\n" for i in range(200)))
    corpus = json.dumps([str(tmp_path / "a.en"), str(tmp_path / "a.de")])
    config = configuration(**{"preset": "tiny", "data.train": corpus})
    assert train(config, tmp_path / "run").exit_code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.model")}
    (tmp_path / "a.en").write_text("".join(f"something else {i}\n" for i in range(200)))
    with pytest.raises(DataError, match="the text and the tokenizer that it began with"):
        train(config, tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.model")} == before


def test_what_the_text_was_is_not_guessed(tmp_path):
    config = configuration()
    assert train(config, tmp_path).exit_code == 0
    before = (tmp_path / "tokenizer.model").read_bytes()
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(DataError, match="no longer known"):
        train(config, tmp_path)
    assert (tmp_path / "tokenizer.model").read_bytes() == before


def test_a_finished_run_goes_on_as_if_it_had_been_longer_from_the_beginning(tmp_path):
    often = {"train.valid_steps": 4, "train.steps": 8}
    assert train(configuration(**often), tmp_path / "longer").step == 8
    longer = configuration(**{**often, "train.steps": 12, "train.keep_checkpoints": 5})
    assert train(longer, tmp_path / "longer").step == 12
    assert train(longer, tmp_path / "long").step == 12
    runs = [read_arrays(tmp_path / name / "checkpoints" / "step-00000012.npz") for name in ("longer", "long")]
    for name, array in runs[0].arrays.items():
        np.testing.assert_array_equal(array, runs[1].arrays[name], err_msg=name)
    assert Workdir(tmp_path / "longer").load_metadata() == Workdir(tmp_path / "long").load_metadata()
    assert Workdir(tmp_path / "longer").load_config() == longer


def test_a_finished_run_that_is_judged_otherwise_is_finished_again(finished_run, tmp_path, capsys):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    test_set = tmp_path / "test.tsv"
    test_set.write_text("Anna sleeps.\tAnna schläft.\nThe dog sees the cat.\tDer Hund sieht die Katze.\n")
    before = Workdir(folder).load_metadata()
    other = Workdir(folder).load_config().replace(data=dict(test=str(test_set)), decode=dict(beam_width=2))
    assert train(other, folder).step == 14
    found = Workdir(folder).load_metadata()
    assert found["test"]["num_sentences"] == 2 and found["judged_on"] != before["judged_on"]
    assert set(found["validation"]) == set(before["validation"]) and Workdir(folder).load_config() == other
    assert Translator.load(folder).decode.beam_width == 2

    written = (folder / "model.keras").stat().st_mtime_ns
    assert train(other.replace(train=dict(log_steps=9)), folder).step == 14
    assert (folder / "model.keras").stat().st_mtime_ns == written

    shutil.rmtree(folder / "checkpoints")
    capsys.readouterr()
    assert train(other.replace(decode=dict(beam_width=3)), folder).metadata == found
    assert "the checkpoint of its last step is gone" in capsys.readouterr().out
    assert (folder / "model.keras").stat().st_mtime_ns == written


ON_TWO_REPLICAS = """
import json, sys
from tests.devices import part
part()
from keras_transformer.training.trainer import train
from tests.training.runs import configuration
assert train(configuration(**json.loads(sys.argv[2])), sys.argv[1]).step == 8
"""


def test_a_run_goes_on_with_as_many_parts_of_a_batch_and_no_other_number(tmp_path):
    same = {"model.dropout": 0, "train.steps": 4, "train.valid_sentences": 2, "train.valid_steps": 100}
    same["train.strategy"] = "one_device"
    assert train(configuration(**same), tmp_path / "run").step == 4  # with two micro-batches
    longer = {**same, "train.steps": 8}
    replicas = {**longer, "train.strategy": "mirrored"}
    with pytest.raises(WorkdirError, match="made for 2 parts.* Received: 2 x 2.*train.accumulation=2"):
        train(configuration(**replicas), tmp_path / "run")
    # In a process of its own: the collectives of two strategies in one process meet.
    changes = json.dumps({**replicas, "train.accumulation": 1})
    subprocess.run([sys.executable, "-c", ON_TWO_REPLICAS, tmp_path / "run", changes], cwd=ROOT, check=True)
    assert train(configuration(**longer), tmp_path / "alone").step == 8
    moved, alone = (read_arrays(tmp_path / name / "checkpoints" / "step-00000008.npz") for name in ("run", "alone"))
    for name, array in moved.arrays.items():
        np.testing.assert_allclose(array, alone.arrays[name], atol=1e-5, err_msg=name)


def test_a_workdir_in_use_is_refused(tmp_path):
    holder = Workdir(tmp_path)
    holder.lock()
    with pytest.raises(WorkdirError, match="one run at a time"):
        train(configuration(), tmp_path)
    holder.unlock()


def test_a_folder_of_something_else_gets_no_file(tmp_path):
    (tmp_path / "model.keras").write_bytes(b"of another program")
    with pytest.raises(WorkdirError, match=r"holds model\.keras, but no config\.json of a run"):
        train(configuration(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


def test_a_finished_run_without_its_checkpoints_stays_finished(finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    config = Workdir(folder).load_config()
    shutil.rmtree(folder / "checkpoints")
    before = {name: (folder / name).read_bytes() for name in ("log.jsonl", "model.keras", "tokenizer.model")}
    delivered = []
    assert train(config, folder, deliver=lambda: delivered.append(1)) == (14, Workdir(folder).load_metadata(), None)
    assert delivered and all((folder / name).read_bytes() == data for name, data in before.items())


def test_a_finished_run_without_its_checkpoints_makes_no_more_steps(finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    config = Workdir(folder).load_config()
    with pytest.raises(WorkdirError, match=r"after step 14, where.*train.steps=20.*train.start_from="):
        train(config.replace(train=dict(steps=20)), folder)
    other = config.replace(train=dict(log_steps=9))
    assert train(other, folder).step == 14 and Workdir(folder).load_config() == other


def test_a_finished_run_that_keeps_its_best_checkpoint_alone_is_not_trained_again(finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    for path in (folder / "checkpoints").glob("step-*.npz"):
        path.unlink()
    best = folder / "checkpoints" / "best.npz"
    if read_arrays(best).state["step"] == 14:  # where the last one is the best, it would be no test
        record = read_arrays(best)
        write_arrays(best, record.arrays, {**record.state, "step": 7})
    before = (folder / "log.jsonl").read_bytes()
    assert train(Workdir(folder).load_config(), folder).step == 14
    assert (folder / "log.jsonl").read_bytes() == before


def test_a_run_from_another_one_that_is_killed_after_its_first_validation_goes_on(finished_run, tmp_path, monkeypatch):
    """Then there is nothing but the best checkpoint."""
    config = Workdir(finished_run).load_config()
    changes = dict(start_from=str(finished_run), valid_steps=2, steps=4, checkpoint_steps=2)
    few = tmp_path / "few.tsv"
    few.write_text("the dog sleeps\tder hund schläft\n")  # quicker than the demo's
    config = config.replace(train=changes, data=dict(valid=str(few), test=str(few)))
    whole = train(config, tmp_path / "whole")
    save = Checkpoints.save

    def killed(self, trainee, state, path=None):
        save(self, trainee, state, path)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", killed)
        with pytest.raises(MemoryError):
            train(config, tmp_path / "killed")
    assert [path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()] == ["best.npz"]
    resumed = train(config.replace(train=dict(log_steps=3)), tmp_path / "killed")
    assert resumed.metadata == whole.metadata and Workdir(tmp_path / "killed").load_config().train.log_steps == 3
    for name in ("step-00000002.npz", "step-00000004.npz"):
        runs = [read_arrays(tmp_path / run / "checkpoints" / name).arrays for run in ("whole", "killed")]
        for key, array in runs[0].items():
            np.testing.assert_array_equal(array, runs[1][key], err_msg=key)


def test_a_model_that_was_made_otherwise_is_not_trained_over(finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "average", ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "model.json").write_text('{"weights": "average of 2"}')
    before = (folder / "log.jsonl").read_bytes()
    with pytest.raises(WorkdirError, match="not trained there"):
        train(Workdir(folder).load_config(), folder)
    assert (folder / "log.jsonl").read_bytes() == before


def test_a_signal_in_the_last_validation_stops_the_run_before_its_end(tmp_path, monkeypatch):
    verdict, validations = Judge.verdict, []

    def verdict_and_signal(self, weights):
        validations.append(1)
        if len(validations) == 2:  # of step 8, the last
            os.kill(os.getpid(), signal.SIGTERM)
        return verdict(self, weights)

    monkeypatch.setattr(Judge, "verdict", verdict_and_signal)
    config = configuration(**{"train.valid_steps": 4})
    stopped = train(config, tmp_path)
    assert stopped.exit_code == 143 and stopped.step == 8 and not (tmp_path / "model.keras").exists()
    monkeypatch.undo()
    assert train(config, tmp_path).exit_code == 0 and (tmp_path / "model.keras").exists()
