"""The log: means over tokens, and the same file whether the run was interrupted or not."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer.training.journal import Journal, read_log

TIMES = ("seconds", "tokens_per_second")


def logs(step):
    return {"loss": 10.0 * step, "nll": 9.0 * step, "tokens": 3 + step, "skipped": 0.0, "gradient_norm": 1.0}


def write(journal, steps, every=3):
    for step in steps:
        journal.add(step, logs(step), 0.01)
        if step % every == 0:
            journal.write_train(step, 0.01, 1.0)


def without_times(path):
    return [{key: value for key, value in record.items() if key not in TIMES} for record in read_log(path)]


def test_a_record_holds_the_means_over_the_tokens_of_its_steps(tmp_path):
    journal = Journal(tmp_path, 9)
    write(journal, range(1, 4))
    (record,) = read_log(tmp_path / "log.jsonl")
    assert record["step"] == 3 and record["tokens"] == 15
    assert record["loss"] == pytest.approx(60 / 15)
    assert record["perplexity"] == pytest.approx(math.exp(54 / 15))


@pytest.mark.parametrize("saved", [5, 6])  # steps; the record of step 6 is written before its checkpoint
def test_a_resumed_journal_equals_one_that_was_never_interrupted(tmp_path, saved):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    straight.mkdir(), broken.mkdir()
    write(Journal(straight, 12), range(1, 13))
    first = Journal(broken, 12)
    write(first, range(1, saved + 1))
    state = json.loads(json.dumps(first.state()))
    write(first, range(saved + 1, saved + 4))  # killed here, three steps after the checkpoint
    with open(broken / "log.jsonl", "a") as file:
        file.write('{"kind": "tra')
    with open(broken / "log.jsonl", "ab") as file:
        file.write(b'\x89\xff\n[1]\n3\n{"seconds": 1}\n{"kind": "tra')
    second = Journal(broken, 12)
    second.restore(state, saved)
    write(second, range(saved + 1, 13))
    assert without_times(broken / "log.jsonl") == without_times(straight / "log.jsonl")


def test_the_seconds_of_a_resumed_journal_go_on(tmp_path):
    first = Journal(tmp_path, 9)
    first._started -= 1000.0  # a long run
    write(first, range(1, 4))
    first.write({"kind": "valid", "step": 3, "bleu": 1.0})
    first.write({"kind": "valid", "step": 5, "bleu": 2.0})
    second = Journal(tmp_path, 9)
    second.restore(first.state(), 4)
    write(second, range(5, 7))
    seconds = [record["seconds"] for record in read_log(tmp_path / "log.jsonl")]
    assert len(seconds) == 3 and 1000 <= seconds[0] <= seconds[1] <= seconds[2] < 1100


def test_a_skipped_step_does_not_spoil_the_means(tmp_path):
    journal = Journal(tmp_path, 9)
    journal.add(1, logs(1), 0.01)
    journal.add(2, {"loss": math.nan, "nll": math.nan, "tokens": 5.0, "skipped": 1.0}, 0.01)
    journal.write_train(2, 0.01, math.nan)
    (record,) = read_log(tmp_path / "log.jsonl")
    assert record["loss"] == pytest.approx(10 / 4) and record["skipped"] == 1 and record["gradient_norm"] is None


def test_a_window_of_nothing_but_skipped_steps_has_no_means(tmp_path):
    journal = Journal(tmp_path, 9)
    journal.add(1, {"loss": math.nan, "nll": math.nan, "tokens": 5.0, "skipped": 1.0}, 0.01)
    journal.write_train(1, 0.01, math.nan)
    (record,) = read_log(tmp_path / "log.jsonl")
    assert record["loss"] is None and record["perplexity"] is None and record["skipped"] == 1


def test_only_the_chief_writes(tmp_path):
    journal = Journal(tmp_path, 9, enabled=False)
    write(journal, range(1, 7))
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_on_without_tensorboard_where_its_folder_cannot_be_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "tensorboard").write_text("no folder")
    write(Journal(tmp_path, 9), range(1, 7))
    said = capsys.readouterr().err.splitlines()
    assert said.count(f"TensorBoard gets no records: {tmp_path / 'tensorboard'}: Not a directory") == 1
    (tmp_path / "tensorboard").unlink()

    def run_out(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.summary, "scalar", run_out)
    journal = Journal(tmp_path, 9)
    journal.write({"kind": "valid", "step": 6, "bleu": 7.5})
    journal.write({"kind": "valid", "step": 7, "bleu": 8.5})
    assert capsys.readouterr().err == "TensorBoard gets no more records: No space left on device\n"
    assert [record["bleu"] for record in read_log(tmp_path / "log.jsonl")[-2:]] == [7.5, 8.5]


def test_tensorboard_shows_the_figures_of_the_log(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journal = Journal(tmp_path, 9)
    write(journal, range(1, 7))
    journal.write({"kind": "valid", "step": 6, "bleu": 7.5, "samples": ["text"]})
    journal._tensorboard.flush()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    tags = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}
    shown = {(tag, event.step): tf.make_ndarray(event.tensor_proto) for tag in tags for event in tags[tag]}
    assert shown["train/loss", 3] == 60 / 15 and shown["train/loss", 6] == 150 / 24 and shown["valid/bleu", 6] == 7.5
    logged = {
        (f"{record['kind']}/{name}", record["step"]): value
        for record in read_log(tmp_path / "log.jsonl")
        for name, value in record.items()
        if name not in ("kind", "step", "samples")
    }
    assert shown == pytest.approx(logged)


def test_the_progress_line_tells_the_figures_the_speed_and_the_time_left(tmp_path, monkeypatch, capsys):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("keras_transformer.training.journal.time.monotonic", lambda: clock.now)
    journal, figures = Journal(tmp_path, 100), {"loss": 15e3, "nll": 3e3 * math.log(7), "tokens": 3e3, "skipped": 0.0}
    for step in range(1, 51):
        journal.add(step, figures, 0.0025)
    clock.now += 51  # seconds, and as many steps
    journal.add(51, figures, 0.0025)
    first, last = capsys.readouterr().err.splitlines()
    assert first.split()[:2] == ["step", "1/100"] and first.endswith("  ? left")
    assert last.split("  ") == [
        "step", "", " 51/100", " 51%", "loss 5.000", "perplexity 7.00", "learning rate 2.5e-03",
        "3,000 target tokens/s", "0:49 left",
    ]  # fmt: skip


def test_the_speed_counts_what_was_done_since_the_beginning_alone(tmp_path):
    first = Journal(tmp_path, 9)
    first.sums["tokens"] = 1e9  # of before the interruption
    second = Journal(tmp_path, 9)
    second.restore(first.state(), 4)
    second._window_started -= 1000.0  # of compiling
    second.begin()
    second._window_started -= 1.0
    second.add(5, logs(5), 0.01)
    assert second._speed() == pytest.approx(8, rel=0.1)


def test_a_record_has_the_speed_since_the_one_before_without_the_pauses(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("keras_transformer.training.journal.time.monotonic", lambda: clock.now)
    journal = Journal(tmp_path, 9)
    for step, seconds in enumerate((2.0, 4.0), start=1):
        with journal.pause_clock():
            clock.now += 100.0
        clock.now += seconds
        journal.add(step, {**logs(step), "tokens": 12.0}, 0.01)
        journal.write_train(step, 0.01, 1.0)
    assert [record["tokens_per_second"] for record in read_log(tmp_path / "log.jsonl")] == [6.0, 3.0]


def test_the_progress_of_a_process_without_standard_error_is_shown_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # closed, as for a daemon
    journal = Journal(tmp_path, 3)
    write(journal, range(1, 4))
    journal.say("A validation.")
    assert [record["step"] for record in read_log(tmp_path / "log.jsonl")] == [3]
