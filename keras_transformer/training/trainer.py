"""The course of a training run: from its beginning or its newest checkpoint to the finished model, or to a signal."""

import hashlib
import signal
from functools import partial
from typing import NamedTuple

from keras_transformer.config import PATHS, Config, differences
from keras_transformer.data.digests import digest
from keras_transformer.training import finish
from keras_transformer.training import strategy as strategies
from keras_transformer.training.callbacks import Checkpointing, Logging, Validation
from keras_transformer.training.journal import Journal
from keras_transformer.training.run import Run
from keras_transformer.training.workdir import Workdir, WorkdirError


class Result(NamedTuple):
    """How a run ended."""

    step: int  # steps made
    metadata: dict | None  # model.json of a finished run
    stopped_by: int | None  # the signal that ended an unfinished one

    @property
    def exit_code(self):
        """0 for a finished run, 128 + the number of the signal for an interrupted one (130 SIGINT, 143 SIGTERM)."""
        return 0 if self.metadata is not None else 128 + (self.stopped_by or signal.SIGTERM)


def train(config: Config, workdir, *, check=None, deliver=None) -> Result:
    """Trains the model of `config` in the folder `workdir`, or goes on with the run that lies there.

    Args:
        config: a `Config`, as `load_recipe` or `preset` returns it.
        workdir: the folder; it is made if it does not exist.
        check: called before a run begins, or goes on that is not finished; its error ends the run.
        deliver: called once the finished model is there. Of several workers one calls both, the one that writes.

    Returns:
        A `Result`. Its `metadata` is None where a signal has stopped the run; the same call then goes on.
    """
    if not isinstance(config, Config):
        raise TypeError(f"`config` must be a Config, as `load_recipe` returns it. Received: {config!r:.80}")
    workdir = Workdir(workdir)
    try:
        strategy = strategies.make_strategy(config.train.strategy)
        with strategies.lost_workers_reported(strategy):
            return complete(Run(config, workdir, strategy, check=check, deliver=deliver))
    finally:
        workdir.unlock()


def complete(run: Run) -> Result:
    """Trains what is left to train and finishes the model, unless a signal stops it."""
    state = run.checkpoints.restore(run.trainee, run.say)
    step = state["step"] if state else None
    _check_workers(run, step or 0)  # and every one has read checkpoints and configuration
    if finish.has_only_the_model(run, step):
        step, metadata = finish.accept_the_model(run)
    else:
        training = Training(run, state)
        training.begin(state)
        training.go_on()
        step = training.step
        if training.is_stopped:
            run.say(f"Stopped by a signal after step {step}. The same command resumes.")
            return Result(step, None, training.saving.received)
        metadata = finish.finish(run, step) if run.is_chief else {}
    if run.is_chief:
        run.deliver()
    strategies.barrier(run.strategy)  # all wait: a worker that left would take the chief with it
    return Result(step, metadata, None)


class Training:
    """The steps of a run from where it stands.

    Args:
        run: the `Run`, with the variables of its newest checkpoint.
        state: of that checkpoint, or None.

    Attributes:
        step: where it stands; after `go_on`, where it ended.
    """

    def __init__(self, run, state):
        self.run, self.config, self.step = run, run.config.train, state["step"] if state else 0
        self.journal = Journal(run.workdir.path, self.config.steps, enabled=run.is_chief)
        self.logging = Logging(self.step, self.journal, self.config.log_steps)
        every, patience = self.config.valid_steps or max(1, self.config.steps // 10), self.config.patience
        best, agree = state and state["validation"], partial(strategies.from_chief, run.strategy)
        self.validation = Validation(self.step, run.judge, self.journal, every, patience, best, agree)
        self.saving = Checkpointing(
            self.step,
            run.checkpoints,
            {"journal": self.journal, "validation": self.validation, "plan": run.plan},
            validation=self.validation,
            config=self.config,
            enabled=run.is_chief,
        )

    @property
    def is_left(self):
        """Whether there are steps to make."""
        return self.step < self.config.steps and not self.validation.is_out_of_patience

    @property
    def is_stopped(self):
        """Whether a signal ended it."""
        if strategies.has_several_workers(self.run.strategy):  # they go by what all of them know
            return self.saving.stopped_at is not None and not self.validation.is_out_of_patience
        return self.saving.received is not None

    def begin(self, state):
        """Checks that the run may go on from `state`, and makes log, configuration and checkpoints fit to its step."""
        if self.step:
            if self.run.is_chief and (self.is_left or not finish.is_finished(self.run, self.step)):
                self.run.check()  # and that of a new run was checked at its beginning
            self._resume(state)
        else:
            self._begin_anew()
        if self.run.is_chief:
            self.run.checkpoints.forget_after(self.step)
        self.saving.set_model(self.run.trainee)
        self.saving.catch_up()

    def _begin_anew(self):
        """Takes the weights of `train.start_from`; removes the log of a run that was killed at once."""
        run = self.run
        if run.origin is not None:
            pairs = zip(run.trainee.transformer.weights, run.origin.model.weights, strict=True)
            run.trainee.begin_with({ours.path: theirs.numpy() for ours, theirs in pairs})  # it may have another name
            run.say(f"Beginning with the weights of {self.config.start_from}.")
            run.origin = None  # its memory
        if run.is_chief:
            run.workdir.log_path.unlink(missing_ok=True)

    def _resume(self, state):
        if self.step < self.config.steps:
            self._check_parts(state["plan"])
        self.journal.restore(state["journal"], self.step)
        self.run.say(f"Resuming at step {self.step}.")
        self.run.take_changes(self.step)

    def _check_parts(self, plan):
        """Refuses to go on with other batches than those that the checkpoint was made with, on whatever machine."""
        if plan != self.run.plan.state():
            before, replicas = plan["rows_multiple"], self.run.strategy.num_replicas_in_sync
            raise WorkdirError(
                f"The batches of {self.run.workdir.path} are made for {before} parts, replicas x train.accumulation; "
                f"for another number they would differ from here on. Received: {replicas} x "
                f"{self.config.accumulation}. One device makes the same batches with train.strategy=one_device "
                f"and train.accumulation={before}."
            )

    def go_on(self):
        """Trains to the end, or to a signal. Says why, where it does not and is not at `train.steps`."""
        if self.is_left:
            self.run.warm_up()
            with self.saving.listening():
                self._fit()
            self.step = self.saving.stopped_at or self.config.steps
        elif self.step > self.config.steps:
            self.run.say(f"It already has more steps than train.steps={self.config.steps}, so it ends here.")
        elif self.step < self.config.steps:
            patience = self.config.patience
            self.run.say(f"It was stopped by train.patience={patience}; with a larger one, or none, it goes on.")

    def _fit(self):
        batches = strategies.distribute(self.run.plan.dataset(self.step), self.run.strategy)
        steps = self.config.steps - self.step
        # In this order: what is saved after a step depends on the validation at that step.
        callbacks = [self.logging, self.validation, self.saving]
        self.journal.begin()
        try:
            self.run.trainee.fit(
                batches, steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0, callbacks=callbacks
            )
        finally:
            self.journal.clear_line()  # for what is said next


def _check_workers(run, step):
    """Refuses workers with other settings, text or weights: they would train a model that is none of theirs."""
    settings = run.config.to_dict()
    for section, fields in PATHS.items():  # the same files may lie elsewhere on another machine
        for field in fields:
            del settings[section][field]
    weights = _hash(run.origin.model) if run.origin else None
    same = settings, run.data.train.key, step, run.workdir.model_path.exists(), weights
    if not strategies.is_same(run.strategy, int(digest(same), 16) % 2**53):
        first = run.workdir.load_config().to_dict() if run.workdir.config_path.exists() else {}
        others = ", ".join(differences(first, run.config.to_dict())) or "nothing"
        begins = f", weights {weights[:8]}" if weights else ""
        raise WorkdirError(
            "Every worker must have the configuration, the text, the workdir and the run to start from of the "
            f"first. Received: different ones in some worker. This one is at step {step} with "
            f"{len(run.data.train):,} pairs (text {run.data.train.key[:8]}{begins}), and differs from "
            f"{run.workdir.config_path.absolute()} in: {others}."
        )


def _hash(model):
    """A hash of the weights of a model."""
    hashed = hashlib.sha256()
    for variable in model.weights:
        hashed.update(variable.numpy())
    return hashed.hexdigest()
