"""The parts of a run fit together."""

from keras_transformer.training.run import evenly
from keras_transformer.training.workdir import Workdir
from tests.training.runs import configuration, new_run


def test_a_verdict_does_not_depend_on_when_compiling_pays(tmp_path):
    run = new_run(configuration(**{"train.xla": "true"}), Workdir(tmp_path))
    assert run.judge.translator.searching()._xla is False
    run.workdir.unlock()


def test_a_validation_needs_no_more_room_than_a_part_of_a_batch(tmp_path):
    run = new_run(configuration(**{"train.tokens_per_batch": 512, "train.accumulation": 4}), Workdir(tmp_path))
    assert max(rows * max(lengths) for rows, *lengths in run.plan.shapes) > 128
    assert max(rows * max(lengths) for rows, *lengths in run.judge.plan.shapes) <= 128
    run.workdir.unlock()


def test_a_pair_of_the_validation_may_be_longer_than_a_part_of_a_batch(tmp_path):
    long = " ".join(["the dog sleeps"] * 20)
    (tmp_path / "valid.tsv").write_text(f"{long}\tder hund schläft\n")
    changes = {"data.valid": str(tmp_path / "valid.tsv"), "train.tokens_per_batch": 200, "train.accumulation": 4}
    run = new_run(configuration(**changes), Workdir(tmp_path / "run"))
    run.workdir.unlock()
    [(rows, *lengths)] = run.judge.plan.shapes
    assert rows == 1 and max(lengths) > 50


def test_the_sentences_of_a_validation_come_from_all_over_the_set():
    assert evenly(list(range(10)), 4) == [0, 2, 5, 7]
    assert evenly(list(range(3)), 500) == [0, 1, 2]
    assert evenly([], 500) == evenly([1, 2], 0) == []


def test_one_worker_speaks(tmp_path, capsys):
    run = new_run(configuration(), Workdir(tmp_path))
    run.workdir.unlock()
    assert "device: " in capsys.readouterr().out
    run.say("first")
    run.is_chief = False
    run.say("second")
    assert capsys.readouterr().out == "first\n"
