"""When things happen between steps."""

import contextlib
import math
import os
import signal
import threading
from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_transformer import TrainConfig, TransformerSchedule
from keras_transformer.training import callbacks
from keras_transformer.training.callbacks import Checkpointing, Logging, Validation
from keras_transformer.training.checkpoints import Checkpoints
from keras_transformer.training.journal import Journal
from keras_transformer.training.validation import Verdict


class Saver(Checkpoints):
    """Remembers what would be written."""

    def __init__(self):
        super().__init__("nowhere", keep=2)
        self.saved = []

    def save(self, trainee, state, path=None):
        self.saved.append((state["step"], path.name if path else "regular"))


class Judge:
    """Gives BLEUs, or pairs of BLEU and perplexity."""

    def __init__(self, bleus, judged_on="these"):
        self.figures = iter((bleu, 2.0) if isinstance(bleu, int | float) else bleu for bleu in bleus)
        self.judged_on = judged_on

    def verdict(self, weights):
        bleu, perplexity = next(self.figures)
        return Verdict(1.0, perplexity, bleu, ())


class Quiet:
    total_steps = 100

    def __init__(self):
        self.records, self.said = [], []

    def pause_clock(self):
        return contextlib.nullcontext()

    def write(self, record):
        self.records.append(record)

    def say(self, text):
        self.said.append(text)

    def state(self):
        return {}


def model():
    return SimpleNamespace(stop_request=tf.Variable(0.0), stop_training=False, judged_weights=dict)


def validation(bleus, patience=None, every=1):
    callback = Validation(0, Judge(bleus), Quiet(), every, patience)
    callback.set_model(model())
    return callback


def saving(validation, **train):
    saver = Saver()
    config = TrainConfig(**{"steps": 100, "checkpoint_minutes": None, **train})
    callback = Checkpointing(0, saver, {"validation": validation}, validation=validation, config=config)
    callback.set_model(validation.model)
    return callback, saver


def run(callbacks, steps, stop=0.0):
    for step in range(1, steps + 1):
        for callback in callbacks:
            callback.on_train_batch_end(step - 1, {"stop": stop})


def test_validation_comes_every_so_many_steps_and_at_the_end():
    callback = validation(range(10), every=40)
    run([callback], 100)
    assert [record["step"] for record in callback.journal.records] == [40, 80, 100]


def test_the_clock_of_the_speed_stands_while_a_run_is_validated():
    callback, events = validation([1.0]), []

    @contextlib.contextmanager
    def pause_clock():
        events.append("stands")
        yield
        events.append("goes on")

    verdict, callback.journal.pause_clock = callback.judge.verdict, pause_clock
    callback.judge.verdict = lambda weights: events.append("validated") or verdict(weights)
    run([callback], 1)
    assert events == ["stands", "validated", "goes on"]


def test_the_best_is_remembered_and_patience_runs_out():
    callback = validation([1, 3, 2, 3, 9], patience=2)
    run([callback], 3)
    assert callback.best == {"bleu": 3, "perplexity": 2.0, "step": 2, "without_progress": 1}
    assert not callback.is_out_of_patience
    callback.on_train_batch_end(3, {})
    assert callback.is_out_of_patience


def test_at_a_tie_the_lower_perplexity_is_better():
    callback = validation(
        [(0.0, math.inf), (0.0, 9.0), (0.0, 8.0), (0.0, 8.0), (0.0, math.nan), (0.1, 9.0)], patience=3
    )
    run([callback], 5)
    assert callback.best == {"bleu": 0.0, "perplexity": 8.0, "step": 3, "without_progress": 2}
    callback.on_train_batch_end(5, {})
    assert callback.is_best_now and callback.best["perplexity"] == 9.0


def test_where_nothing_is_translated_the_lower_perplexity_is_better():
    callback = validation([(None, 9.0), (None, 8.0), (None, 8.5)])
    run([callback], 3)
    assert callback.best == {"bleu": 0.0, "perplexity": 8.0, "step": 2, "without_progress": 1}
    assert [record["bleu"] for record in callback.journal.records] == [None] * 3
    assert not any("stopping" in said for said in callback.journal.said)


def test_patience_needs_no_translations():
    callback = validation([(None, 9.0), (None, 8.0), (None, 8.5), (None, 8.0)], patience=2)
    run([callback], 4)
    assert callback.is_out_of_patience and callback.best["step"] == 2
    assert callback.journal.said[-1] == "No better perplexity in 2 validations: stopping."


def test_workers_go_by_the_bleu_that_they_agree_on():
    callback = Validation(0, Judge([1, 3, 2]), Quiet(), 1, 2, agree=lambda own: 7.0)
    callback.set_model(model())
    run([callback], 3)
    assert callback.best == {"bleu": 7.0, "perplexity": 7.0, "step": 1, "without_progress": 2}
    assert [record["bleu"] for record in callback.journal.records] == [1, 3, 2]


def test_a_run_out_of_patience_is_saved_and_stops():
    judged = validation([3, 2], patience=1, every=5)
    callback, saver = saving(judged)
    run([judged, callback], 10)
    assert saver.saved[:2] == [(5, "best.npz"), (10, "interrupted.npz")]
    assert callback.stopped_at == 10 and callback.model.stop_training


def test_a_resumed_validation_goes_on_from_its_state():
    first = validation([1, 3, 2], patience=2)
    run([first], 3)
    second = Validation(3, Judge([2]), Quiet(), 1, 2, state=first.state())
    second.set_model(model())
    second.on_train_batch_end(0, {})
    assert second.is_out_of_patience


def test_other_sentences_are_no_comparison():
    first = validation([90], patience=1)
    run([first], 1)
    second = Validation(1, Judge([2], judged_on="others"), said := Quiet(), 1, 1, state=first.state())
    second.set_model(model())
    second.on_train_batch_end(0, {})
    assert second.is_best_now and second.best == {"bleu": 2, "perplexity": 2.0, "step": 2, "without_progress": 0}
    assert "begin anew" in said.said[0]


def test_a_run_that_has_stopped_does_not_go_on_because_it_is_judged_otherwise():
    first = validation([3, 2], patience=1)
    run([first], 2)
    second, more = (
        Validation(2, Judge([1, 2], judged_on="others"), Quiet(), 1, patience, state=first.state())
        for patience in (1, 2)
    )
    assert first.is_out_of_patience and second.is_out_of_patience
    assert not more.is_out_of_patience
    more.set_model(model())
    more.on_train_batch_end(0, {})
    assert more.best == {"bleu": 1, "perplexity": 2.0, "step": 3, "without_progress": 0}  # the first by this judge


def test_checkpoints_come_by_steps_and_at_the_end_and_where_the_bleu_is_best():
    judged = validation([1, 5, 2], every=40)
    callback, saver = saving(judged, checkpoint_steps=30)
    run([judged, callback], 100)
    assert saver.saved == [
        (30, "regular"),
        (40, "best.npz"),
        (60, "regular"),
        (80, "best.npz"),
        (90, "regular"),
        (100, "regular"),
    ]


@pytest.mark.parametrize("start, written", [(0, []), (59, []), (60, [(60, "regular")]), (100, [(100, "regular")])])
def test_what_a_kill_after_the_best_checkpoint_left_out_is_made_up_for(start, written):
    judged, saver = validation([], every=1000), Saver()
    config = TrainConfig(steps=100, checkpoint_steps=30)
    callback = Checkpointing(start, saver, {"validation": judged}, validation=judged, config=config)
    callback.set_model(judged.model)
    callback.catch_up()
    assert saver.saved == written


def test_checkpoints_come_by_minutes(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("keras_transformer.training.callbacks.time.monotonic", lambda: clock.now)
    judged = validation([], every=1000)
    callback, saver = saving(judged, checkpoint_minutes=2.0)
    for step in range(1, 11):
        clock.now += 50
        callback.on_train_batch_end(step - 1, {"stop": 0.0})
    assert [step for step, _ in saver.saved] == [3, 6, 9]


def test_the_best_checkpoints_do_not_put_off_those_by_minutes(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("keras_transformer.training.callbacks.time.monotonic", lambda: clock.now)
    judged = validation(range(1, 11))
    callback, saver = saving(judged, checkpoint_minutes=2.0)
    for step in range(1, 11):
        clock.now += 50
        for each in (judged, callback):
            each.on_train_batch_end(step - 1, {"stop": 0.0})
    assert [step for step, name in saver.saved if name == "regular"] == [3, 6, 9]


def test_who_asks_to_stop_after_the_last_step_finds_the_run_at_its_end():
    callback, saver = saving(validation([], every=1000))
    callback.on_train_batch_end(99, {"stop": 1.0})
    assert saver.saved == [(100, "regular")] and callback.stopped_at is None


@pytest.mark.parametrize("due", [False, True])
def test_a_stop_saves_once_where_the_run_stands(due):
    judged = validation([], every=1000)
    callback, saver = saving(judged, checkpoint_steps=7 if due else 1000)
    callback.on_train_batch_end(6, {"stop": 1.0})
    assert saver.saved == [(7, "regular" if due else "interrupted.npz")]
    assert callback.stopped_at == 7 and callback.model.stop_training


def test_a_signal_becomes_a_request_that_travels_with_the_next_step():
    judged = validation([], every=1000)
    callback, saver = saving(judged)
    callback._receive(15, None)
    callback.on_train_batch_end(0, {"stop": 0.0})
    assert float(callback.model.stop_request) == 1 and saver.saved == []


def test_a_second_ctrl_c_does_not_wait():
    callback, _ = saving(validation([], every=1000))
    callback._receive(2, None)
    with pytest.raises(KeyboardInterrupt):
        callback._receive(2, None)


def test_the_other_workers_write_nothing():
    judged = validation([1, 2], every=50)
    callback, saver = saving(judged, checkpoint_steps=10)
    callback.enabled = False
    run([judged, callback], 100)
    assert saver.saved == []


def test_signals_are_listened_to_while_the_run_trains_and_not_afterwards():
    callback, _ = saving(validation([], every=1000))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with pytest.raises(OSError, match="full"), callback.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        raise OSError("full")
    assert callback.received == signal.SIGTERM
    assert {number: signal.getsignal(number) for number in before} == before


def test_who_presses_ctrl_c_is_told_what_comes(capfd):
    callback, _ = saving(validation([], every=1000))
    with pytest.raises(KeyboardInterrupt), callback.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert "Stopping after this step; Ctrl-C again stops at once" in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err == ""


def test_ctrl_c_counts_where_nobody_reads_what_is_said():
    callback, _ = saving(validation([], every=1000))
    reading, writing = os.pipe()
    os.close(reading)
    shown = os.dup(2)
    os.dup2(writing, 2)
    try:
        with callback.listening():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        os.close(writing)
    assert callback.received == signal.SIGINT


def test_a_signal_that_the_process_ignores_stays_ignored():
    callback, _ = saving(validation([], every=1000))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what it starts with &
    try:
        with callback.listening():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGTERM) == callback._receive
    finally:
        signal.signal(signal.SIGINT, before)
    assert callback.received is None


def test_a_run_in_a_thread_trains_without_listening():
    callback, _ = saving(validation([], every=1000))
    heard = []

    def listen():
        with callback.listening():
            heard.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [signal.getsignal(signal.SIGTERM)]


def test_the_rate_that_is_logged_is_that_of_the_last_update(tmp_path):
    rates = []
    optimizer = SimpleNamespace(iterations=tf.Variable(0, dtype=tf.int64))
    schedule = TransformerSchedule(16, warmup_steps=1, steps=8, cooldown_steps=6)
    model = SimpleNamespace(optimizer=optimizer, num_skipped=tf.Variable(0, dtype=tf.int64), schedule=schedule)
    journal = SimpleNamespace(add=lambda step, logs, rate: rates.append(rate), skipped_in_a_row=0, total_steps=99)
    logging, expected = Logging(0, journal, 1000), []
    logging.set_model(model)
    for step, skipped in enumerate((0, 0, 1, 0, 1, 1, 0, 0)):
        if not skipped:
            used = float(schedule(optimizer.iterations, model.num_skipped))
        (model.num_skipped if skipped else optimizer.iterations).assign_add(1)
        logging.on_train_batch_end(step, {"skipped": float(skipped)})
        expected.append(used)
    assert rates[:5] == expected[:5] and rates[6:] == expected[6:] and len(set(expected)) == 5


def test_a_run_ends_that_has_made_no_update_for_long(monkeypatch, tmp_path):
    monkeypatch.setattr(callbacks, "MAX_SKIPPED", 3)
    optimizer = SimpleNamespace(iterations=tf.Variable(1))
    model = SimpleNamespace(optimizer=optimizer, num_skipped=tf.Variable(0), schedule=lambda *_: 0.1)
    first, resumed = (Journal(tmp_path, 100, enabled=False) for _ in range(2))

    def make_step(journal, step, skipped):
        logging = Logging(0, journal, 1000)
        logging.set_model(model)
        logging.on_train_batch_end(step, {"skipped": skipped, "tokens": 1.0, "loss": 1.0, "nll": 1.0})

    for step, skipped in enumerate((1.0, 1.0, 0.0, 1.0, 1.0)):
        make_step(first, step, skipped)
    resumed.restore(first.state(), 5)
    with pytest.raises(callbacks.DivergedError, match="not been finite for 3 steps.*learning_rate_scale"):
        make_step(resumed, 5, 1.0)
