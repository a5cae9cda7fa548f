"""The course of a training run: from its beginning or its newest checkpoint to the finished model, or to a signal."""

import signal
from functools import partial
from typing import NamedTuple

from keras_transformer.config import Config
from keras_transformer.training import finish
from keras_transformer.training import strategy as strategies
from keras_transformer.training.callbacks import Checkpointing, Logging, Validation
from keras_transformer.training.journal import Journal
from keras_transformer.training.run import Run
from keras_transformer.training.workdir import Workdir


class Result(NamedTuple):
    """How a run ended."""

    step: int  # steps made
    metadata: dict | None  # model.json of a finished run
    stopped_by: int | None  # the signal that ended an unfinished one

    @property
    def exit_code(self):
        """0 for a finished run, 128 + the number of the signal for an interrupted one (130 SIGINT, 143 SIGTERM)."""
        return 0 if self.metadata is not None else 128 + (self.stopped_by or signal.SIGTERM)


def train(config: Config, workdir, *, check=lambda: None, deliver=lambda: None) -> Result:
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
            return complete(Run(config, workdir, strategy, check=check), deliver)
    finally:
        workdir.unlock()


def complete(run: Run, deliver=lambda: None) -> Result:
    """Trains what is left to train and finishes the model, unless a signal stops it."""
    state = run.checkpoints.restore(run.trainee, run.say)
    run.check_workers(state["step"] if state else 0)  # and every one has read checkpoints and configuration
    if finish.has_only_the_model(run, state):
        return _end(run, finish.accept_the_model(run), deliver, as_it_is=True)
    training = Training(run, state or {"step": 0})
    training.begin()
    training.go_on()
    if training.is_stopped:
        run.say(f"Stopped by a signal after step {training.step}. The same command resumes.")
        return Result(training.step, None, training.saving.received)
    return _end(run, training.step, deliver)


def _end(run, step, deliver, as_it_is=False):
    """The chief finishes the model; all wait for it, since a worker that left would take the chief with it."""
    metadata = {}
    if run.is_chief:
        if as_it_is or finish.is_finished(run, step):
            metadata = run.workdir.load_metadata()
            run.say(f"Finished at step {step}: {run.workdir.model_path}")
        else:
            metadata = finish.finish(run, step)
        deliver()
    strategies.barrier(run.strategy)
    return Result(step, metadata, None)


class Training:
    """The steps of a run from where it stands.

    Args:
        run: the `Run`, with the variables of its newest checkpoint.
        state: of that checkpoint, or {"step": 0}.

    Attributes:
        step: where it stands; after `go_on`, where it ended.
    """

    def __init__(self, run, state):
        train, self.run, self.state, self.step = run.config.train, run, state, state["step"]
        self.journal = Journal(run.workdir.path, train.steps, enabled=run.is_chief)
        self.logging = Logging(self.step, self.journal, train.log_steps)
        every = train.valid_steps or max(1, train.steps // 10)
        agree = partial(strategies.from_chief, run.strategy)
        self.validation = Validation(
            self.step, run.judge, self.journal, every, train.patience, state.get("validation"), agree
        )
        self.saving = Checkpointing(
            self.step,
            run.checkpoints,
            {"journal": self.journal, "validation": self.validation, "plan": run.plan},
            validation=self.validation,
            config=train,
            enabled=run.is_chief,
        )

    @property
    def is_left(self):
        """Whether there are steps to make."""
        return self.step < self.run.config.train.steps and not self.validation.is_out_of_patience

    @property
    def is_stopped(self):
        """Whether a signal ended it. Several workers go by what all of them know."""
        is_stopped = self.saving.stopped_at is not None and not self.validation.is_out_of_patience
        return is_stopped or bool(self.saving.received and not strategies.has_several_workers(self.run.strategy))

    def begin(self):
        """Makes weights, log and checkpoints those of the step that it goes on from."""
        run = self.run
        if self.step:
            if run.is_chief and (self.is_left or not finish.is_finished(run, self.step)):
                run.check()  # and that of a new run was checked at its beginning
            self._resume()
        else:
            self._start()
        if run.is_chief:
            run.checkpoints.forget_after(self.step)
        self.saving.set_model(run.trainee)
        self.saving.catch_up()

    def _start(self):
        """Starts at step 0 with the weights of `train.start_from`; removes the log of a run that was killed at once."""
        run = self.run
        if run.origin is not None:
            pairs = zip(run.trainee.transformer.weights, run.origin.model.weights, strict=True)
            run.trainee.begin_with({ours.path: theirs.numpy() for ours, theirs in pairs})  # it may have another name
            run.say(f"Beginning with the weights of {run.config.train.start_from}.")
            run.origin = None  # its memory
        if run.is_chief:
            run.workdir.log_path.unlink(missing_ok=True)

    def _resume(self):
        if self.step < self.run.config.train.steps:
            self.run.check_parts(self.state["plan"])
        self.journal.restore(self.state["journal"], self.step)
        self.run.say(f"Resuming at step {self.step}.")
        self.run.take_changes(self.step)

    def go_on(self):
        """Trains to the end, or to a signal; says why where there is nothing to train."""
        train, say = self.run.config.train, self.run.say
        if self.is_left:
            self.run.warm_up()
            with self.saving.listening():
                self._fit()
            self.step = self.saving.stopped_at or train.steps
        elif self.step > train.steps:
            say(f"It already has more steps than train.steps={train.steps}, so it ends here.")
        elif self.step < train.steps:
            say(f"It was stopped by train.patience={train.patience}; with a larger one, or none, it goes on.")

    def _fit(self):
        batches = strategies.distribute(self.run.plan.dataset(self.step), self.run.strategy)
        # In this order: what is saved after a step depends on the validation at that step.
        callbacks = [self.logging, self.validation, self.saving]
        steps = self.run.config.train.steps - self.step
        self.journal.begin()
        try:
            self.run.trainee.fit(
                batches, steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0, callbacks=callbacks
            )
        finally:
            self.journal.clear_line()  # for what is said next
