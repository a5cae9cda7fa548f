"""What happens between the steps of a run: logging, validation, checkpoints, stopping. Ordinary Keras callbacks.

Each counts the steps of the whole run, not of this `fit`. A callback that has a state can hand it out and take it back,
so that a checkpoint can keep it.
"""

import contextlib
import math
import os
import signal
import threading
import time

import keras

MAX_SKIPPED = 500  # consecutive steps without a finite gradient


class RunCallback(keras.callbacks.Callback):
    """A callback that knows the step of the run.

    Args:
        start: steps made before this `fit`.
    """

    def __init__(self, start):
        super().__init__()
        self.start = start

    def on_train_batch_end(self, batch, logs=None):
        self.after_step(self.start + batch + 1, logs)

    def after_step(self, step, logs):
        raise NotImplementedError


class DivergedError(RuntimeError):
    """A run that learns nothing any more."""

    exit_code = 1  # of a command that it ends


class Logging(RunCallback):
    """Writes a record every `every` steps, and the progress line. Ends a run whose gradients are no longer finite."""

    def __init__(self, start, journal, every):
        super().__init__(start)
        self.journal, self.every = journal, every

    def after_step(self, step, logs):
        made = self.model.optimizer.iterations.numpy() - 1  # the rate of the update that was made, not of the next
        skipped = self.model.num_skipped.numpy() - int(logs["skipped"])  # before it, or before this step
        rate = float(self.model.schedule(max(made, 0), skipped))
        self.journal.add(step, logs, rate)
        if self.journal.skipped_in_a_row >= MAX_SKIPPED:
            raise DivergedError(
                f"The gradient has not been finite for {MAX_SKIPPED} steps, so nothing was learned. Give another "
                "--workdir and a lower train.learning_rate_scale, more train.warmup_steps or train.clip_norm."
            )
        if step % self.every == 0 or step == self.journal.total_steps:
            self.journal.write_train(step, rate, float(logs["gradient_norm"]))


class Validation(RunCallback):
    """Validates every `every` steps: loss, BLEU, sample translations. Remembers the best; stops without progress.

    At equal BLEU, which is 0 at the beginning of many runs, or without any, the lower perplexity is better. Workers
    need not get the same figures to the last digit: `agree` gives all of them the same ones.
    """

    def __init__(self, start, judge, journal, every, patience, state=None, agree=float):
        super().__init__(start)
        self.judge, self.journal, self.every, self.patience = judge, journal, every, patience
        self.agree = agree
        self.best = self._taken_over(state)
        self.is_best_now = False

    def _taken_over(self, state):
        """The best validation so far, where a run goes on from a checkpoint's `state`."""
        none_yet = {"bleu": None, "perplexity": None, "step": None, "without_progress": 0}
        if not state:
            return none_yet
        if state["judged_on"] == self.judge.judged_on:
            return state["best"]
        if self._ends_patience(state["best"]):  # it has stopped, and goes on with more patience only
            return {**none_yet, "without_progress": state["best"]["without_progress"]}
        self.journal.say(
            "Validation has another set or another search: the best so far and `train.patience` begin anew."
        )
        return none_yet

    def state(self):
        return {"best": self.best, "judged_on": self.judge.judged_on}

    @property
    def is_out_of_patience(self):
        return self._ends_patience(self.best)

    def _ends_patience(self, best):
        return self.patience is not None and best["without_progress"] >= self.patience

    def after_step(self, step, logs):
        self.is_best_now = False
        if step % self.every and step != self.journal.total_steps:
            return
        with self.journal.pause_clock():
            verdict = self.judge.verdict(self.model.judged_weights())
        self.journal.write({"kind": "valid", "step": step, **verdict.record()})
        self.journal.say(f"step {step}: {verdict.describe()}")
        perplexity = verdict.perplexity if math.isfinite(verdict.perplexity) else math.inf
        self._remember(step, self.agree(verdict.bleu or 0.0), self.agree(perplexity))
        if self.is_out_of_patience:
            validations = "one validation" if self.patience == 1 else f"{self.patience} validations"
            better = "perplexity" if verdict.bleu is None else "BLEU, nor perplexity at the same BLEU,"
            self.journal.say(f"No better {better} in {validations}: stopping.")

    def _remember(self, step, bleu, perplexity):
        best = self.best["bleu"], -(self.best["perplexity"] or math.inf)
        if self.best["bleu"] is None or (bleu, -perplexity) > best:
            self.best = {"bleu": bleu, "perplexity": perplexity, "step": step, "without_progress": 0}
            self.is_best_now = True
        else:
            self.best = {**self.best, "without_progress": self.best["without_progress"] + 1}


class Checkpointing(RunCallback):
    """Writes checkpoints every so many steps or minutes and when validation asks for one; stops on SIGTERM and SIGINT.

    A signal is a request: it travels with the sums of the next step, so that all workers stop after the same one.
    """

    def __init__(self, start, checkpoints, states, *, validation, config, enabled=True):
        super().__init__(start)
        self.checkpoints, self.states, self.validation, self.config = checkpoints, states, validation, config
        self.enabled = enabled
        self.received = None  # the signal that asked to stop
        self.stopped_at = None  # the step after which the run stopped before its end
        self._written_at = time.monotonic()

    @contextlib.contextmanager
    def listening(self):
        """A context in which SIGTERM and SIGINT ask the run to stop, except one that the process was told to ignore.

        Only the main thread of a process can listen.
        """
        handlers = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        handlers = {number: old for number, old in handlers.items() if old not in (signal.SIG_IGN, None)}
        for number in handlers:
            signal.signal(number, self._receive)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _receive(self, number, frame):
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice
        is_first, self.received = self.received is None, number
        if is_first and number == signal.SIGINT:
            with contextlib.suppress(OSError):  # nobody may read any more, as where Ctrl-C has ended `| tee log` too
                os.write(2, b"\nStopping after this step; Ctrl-C again stops at once, without a checkpoint.\n")

    def after_step(self, step, logs):
        if self.received is not None:
            self.model.stop_request.assign(1.0)
        # Every worker sees the same request and the same BLEU, so all stop after the same step.
        stopping = (float(logs["stop"]) > 0 or self.validation.is_out_of_patience) and step < self.config.steps
        if self.validation.is_best_now:  # first: a resumed run does not validate this step again
            self._write(step, self.checkpoints.best_path)
        if self._is_due(step):
            self._write(step)
        elif stopping:
            self._write(step, self.checkpoints.interrupted_path)
        if stopping:
            self.stopped_at = step
            self.model.stop_training = True

    def catch_up(self):
        """Writes the regular checkpoint of the step that was resumed from the best one: the run was killed before it
        could, or it is damaged."""
        if self.start and self._is_due(self.start) and not self.checkpoints.has(self.start):
            self._write(self.start)

    def _is_due(self, step):
        c = self.config
        by_steps = c.checkpoint_steps and step % c.checkpoint_steps == 0
        by_minutes = c.checkpoint_minutes and time.monotonic() - self._written_at >= 60 * c.checkpoint_minutes
        return by_steps or by_minutes or step == c.steps

    def _write(self, step, path=None):
        if not self.enabled:
            return
        if path != self.checkpoints.best_path:
            self._written_at = time.monotonic()
        state = {"step": step, **{name: part.state() for name, part in self.states.items()}}
        self.checkpoints.save(self.model, state, path)
