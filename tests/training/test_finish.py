"""The finished model is the best of its candidates, whole or absent."""

from types import SimpleNamespace

import pytest

from keras_transformer import Config
from keras_transformer.training import finish
from keras_transformer.training.finish import best_of
from keras_transformer.training.journal import rewrite_log
from keras_transformer.training.validation import Verdict
from keras_transformer.training.workdir import Workdir


def test_without_a_test_set_there_is_no_report_of_one(tmp_path):
    for name in ("report.html", "report.json"):
        (tmp_path / name).write_text("of a test set that it had")
    run = SimpleNamespace(data=SimpleNamespace(test_text=[]), workdir=Workdir(tmp_path))
    assert finish._test(run) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("ema", [[], ["an average"]])
@pytest.mark.parametrize("number, averaged", [(1, None), (2, ["3", "4"]), (3, ["2", "3", "4"])])
def test_the_candidates_are_of_the_newest_checkpoints_and_of_the_averages_where_there_are(
    tmp_path, monkeypatch, ema, number, averaged
):
    monkeypatch.setattr(finish, "whole", lambda paths, say: paths)
    monkeypatch.setattr(finish, "average_weights", lambda paths, group="model": (paths, group))
    best = tmp_path / "best.npz"
    best.touch()
    weights = [SimpleNamespace(path="w", numpy=lambda: 7)]
    trainee = SimpleNamespace(
        transformer=SimpleNamespace(trainable_variables=weights), ema=ema, judged_weights=lambda: {"w": 8}
    )
    run = SimpleNamespace(
        trainee=trainee,
        checkpoints=SimpleNamespace(regular=lambda: ["1", "2", "3", "4"], best_path=best),
        config=Config().replace(train=dict(average_checkpoints=number, keep_checkpoints=9)),
        say=None,
    )
    expected = {"last": {"w": 7}, "best": ([best], "average" if ema else "model")}
    expected |= {f"average of {number}": (averaged, "model")} if averaged else {}
    assert finish.candidates(run) == expected | ({"moving average": {"w": 8}} if ema else {})


def test_the_test_set_is_scored_as_the_configuration_says(tmp_path, monkeypatch):
    asked = {}

    def evaluate_translator(*_, **options):
        asked.update(options)
        raise KeyError("enough")

    monkeypatch.setattr(finish.evaluation, "evaluate_translator", evaluate_translator)
    run = SimpleNamespace(
        data=SimpleNamespace(test_text=[("a", "b")]),
        workdir=Workdir(tmp_path),
        judge=SimpleNamespace(translator=None),
        config=Config().replace(data=dict(lowercase=True, bleu_tokenizer="char")),
    )
    with pytest.raises(KeyError, match="enough"):
        finish._test(run)
    assert (asked["lowercase"], asked["tokenize"]) == (True, "char")


@pytest.mark.parametrize("order", [1, -1])
def test_a_candidate_whose_loss_is_no_number_wins_no_tie(order):
    nothing = Verdict(float("nan"), float("nan"), 0.0, ()).record()
    assert nothing == {"loss": None, "perplexity": None, "bleu": 0.0}
    scores = {"average": nothing, "best": {"bleu": 0.0, "perplexity": 5.0}, "last": {"bleu": 0.0, "perplexity": 7.0}}
    assert best_of(dict(list(scores.items())[::order])) == "best"


def test_where_nothing_is_translated_the_perplexity_decides():
    scores = {name: {"bleu": None, "perplexity": perplexity} for name, perplexity in {"a": 7.0, "b": 5.0}.items()}
    assert best_of(scores) == "b"


@pytest.mark.parametrize("bleu, said", [(None, "by perplexity"), (1.0, "by BLEU")])
def test_it_is_said_what_the_weights_were_chosen_by(tmp_path, monkeypatch, bleu, said):
    verdict = SimpleNamespace(record=lambda: {"bleu": bleu, "perplexity": 2.0})
    translator = SimpleNamespace(model=SimpleNamespace(count_params=lambda: 3))
    judge = SimpleNamespace(verdict=lambda weights: verdict, translator=translator)
    lines = []
    config = Config().replace(train=dict(steps=6, patience=3))
    run = SimpleNamespace(judge=judge, config=config, judged_on="these", workdir=Workdir(tmp_path), say=lines.append)
    monkeypatch.setattr(finish, "candidates", lambda run: {"last": {}})
    for name in ("set_weights", "save_model", "_test", "_draw"):
        monkeypatch.setattr(finish, name, lambda *_: None)
    assert finish.finish(run, 5)["validation"] == {"last": {"bleu": bleu, "perplexity": 2.0}}
    assert said in lines[0] and ("BLEU" in lines[1]) == (bleu is not None) and "perplexity 2.000" in lines[1]
    patience = [finish.finish(run, step)["patience"] for step in (5, 6)]
    assert patience == [3, None]  # what has ended the run


@pytest.mark.parametrize(
    "losses, begins",
    [((None, 6.0, None, 5.0, None), "Training loss 6.00 -> 5.00"), ((6.0, None), "Training loss 6.00  ")],
)
def test_the_curve_leaves_out_the_steps_that_were_skipped(tmp_path, losses, begins):
    said, workdir = [], Workdir(tmp_path)
    records = [{"kind": "train", "step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]
    rewrite_log(workdir.log_path, records)
    finish._draw(SimpleNamespace(workdir=workdir, say=said.append))
    assert said[0].startswith(begins)


def test_a_curve_that_cannot_be_drawn_is_said_and_stops_nothing(tmp_path):
    said, workdir = [], Workdir(tmp_path)
    (tmp_path / "learning_curve.png").mkdir()
    rewrite_log(workdir.log_path, [{"kind": "train", "step": step, "loss": 7.0 - step} for step in (1, 2)])
    finish._draw(SimpleNamespace(workdir=workdir, say=said.append))
    assert said[1].startswith("No learning_curve.png: ")


def test_a_run_whose_model_cannot_be_written_is_not_finished(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    verdict = SimpleNamespace(record=lambda: {"bleu": 1.0, "perplexity": 2.0})
    translator = SimpleNamespace(model=SimpleNamespace(count_params=lambda: 3))
    judge = SimpleNamespace(verdict=lambda weights: verdict, translator=translator)
    run = SimpleNamespace(
        judge=judge, config=Config(), judged_on="these", workdir=Workdir(tmp_path), say=lambda text: None
    )
    monkeypatch.setattr(finish, "candidates", lambda run: {"last": {}})
    for name in ("set_weights", "_test", "_draw"):
        monkeypatch.setattr(finish, name, lambda *_: None)
    monkeypatch.setattr(finish, "save_model", full)
    with pytest.raises(OSError, match="No space left"):
        finish.finish(run, 5)
    assert not run.workdir.metadata_path.exists()
    monkeypatch.setattr(finish, "save_model", lambda *_: None)
    assert finish.finish(run, 5)["step"] == 5 and run.workdir.metadata_path.exists()
    for name, stays in (("save_model", True), ("_draw", False)):  # the record of a model before stays with that one
        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
            patched.setattr(finish, name, full)
            finish.finish(run, 5)
        assert run.workdir.metadata_path.exists() == stays
