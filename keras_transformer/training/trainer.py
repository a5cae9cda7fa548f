"""One training run from a configuration to a finished model: what is made, in which order, and what resumes it."""

import hashlib
import signal
import time
from functools import partial
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformer import evaluation, model_folder
from keras_transformer.config import PATHS, Config, differences
from keras_transformer.data.batches import BatchPlan
from keras_transformer.data.digests import digest
from keras_transformer.data.prepare import prepare
from keras_transformer.gpu import add_in_order, multiply_in_float32
from keras_transformer.progress import duration
from keras_transformer.screen import say
from keras_transformer.tokenizer import Tokenizers
from keras_transformer.training import strategy as strategies
from keras_transformer.training.callbacks import Checkpointing, Logging, Validation
from keras_transformer.training.checkpoints import Checkpoints
from keras_transformer.training.finish import finish
from keras_transformer.training.journal import Journal
from keras_transformer.training.origin import load_origin
from keras_transformer.training.step import Trainee
from keras_transformer.training.validation import Judge
from keras_transformer.training.workdir import Workdir, WorkdirError
from keras_transformer.translator import Translator


class Result(NamedTuple):
    """How a run ended."""

    step: int  # steps made
    metadata: dict | None  # model.json of a finished run
    stopped_by: int | None  # the signal that ended an unfinished one

    @property
    def exit_code(self):
        """0 for a finished run, 128 + the number of the signal for an interrupted one (130 SIGINT, 143 SIGTERM)."""
        return 0 if self.metadata is not None else 128 + (self.stopped_by or signal.SIGTERM)


class Run:
    """The parts of one run.

    Args:
        config, workdir, strategy: what is trained, where and on what.
        check: called by the chief before a run begins, or goes on that is not finished; its error ends the run.
        deliver: called by the chief once the finished model is there.
    """

    def __init__(self, config: Config, workdir: Workdir, strategy: tf.distribute.Strategy, *, check=None, deliver=None):
        self.config, self.workdir, self.strategy = config, workdir, strategy
        self.check, self.deliver = check or _nothing, deliver or _nothing
        multiply_in_float32()
        if config.train.deterministic:
            add_in_order()
        keras.utils.set_random_seed(config.train.seed)  # now: later it would destroy tensorflow-text's tokenizers
        self.is_chief = strategies.is_chief(strategy)
        self.say = say if self.is_chief else _nothing
        self.say(f"device: {strategies.describe(strategy)}")
        evaluation.check_tokenizer(config.data.bleu_tokenizer)
        self.changes = self._claim()
        self.origin, self.data = self._prepare()
        self.plan = self._training_plan()
        self.say(self.plan.describe())
        with strategy.scope():
            transformer = model_folder.new_model(config, self.data.tokenizers, dtype=config.train.precision)
            self.trainee = Trainee(transformer, config.train)
        self.judge = self._judge()
        self.checkpoints = Checkpoints(workdir.checkpoints, config.train.keep_checkpoints)

    def _claim(self):
        """The chief takes the workdir. -> what has changed in the configuration"""
        changes = []
        if self.is_chief:
            self.workdir.refuse_other_files()  # before there is a lock among them
            if not self.workdir.has_begun:
                self.check()  # before anything is written
            self.workdir.lock()
            changes = self.workdir.claim(self.config)
        strategies.barrier(self.strategy)  # no worker may write where the chief is refused
        return changes

    def _prepare(self):
        """-> the run that this one starts from, or None; the text"""
        begun, start_from = self.workdir.has_begun, self.config.train.start_from
        origin = load_origin(start_from, self.config) if start_from and not begun else None
        given = None
        if start_from:
            given = origin.tokenizers if origin else Tokenizers.load(self.workdir.path)
        return origin, prepare(self.config.data, self.workdir.path, say=self.say, begun=begun, given=given)

    def _training_plan(self):
        return self._plan(
            self.data.train,
            tokens_per_batch=self.config.train.tokens_per_batch,
            rows_multiple=self._parts,
            subword_sampling=self.config.data.subword_sampling,
        )

    def _validation_plan(self):
        """For one device: what fits there is a part of a training batch, or the longest pair."""
        corpus = self.data.valid
        longest = int(corpus.source_lengths.max()), int(corpus.target_lengths.max())
        tokens = max(self.config.train.tokens_per_batch // self._parts, *longest)
        return self._plan(corpus, tokens_per_batch=tokens, shuffle=False)

    @property
    def _parts(self):
        """How many parts of a batch are computed apart."""
        return self.strategy.num_replicas_in_sync * self.config.train.accumulation

    def _plan(self, corpus, **options):
        data, seed = self.config.data, self.config.train.seed
        return BatchPlan(corpus, buckets=data.buckets, seed=seed, max_length=data.max_length, **options)

    def _judge(self):
        """Makes the judge of validations, with a model of its own on one device."""
        tokenizers = self.data.tokenizers
        # Without XLA: where that pays is a matter of time, and a verdict must not depend on the speed of the machine.
        model = model_folder.new_model(self.config, tokenizers)
        translator = Translator(model, tokenizers, self.config.decode, xla=False)
        texts = evenly(self.data.valid_text, self.config.train.valid_sentences)
        plan = self._validation_plan()
        smoothing, options = self.config.train.label_smoothing, self.config.data.score_options
        return Judge(translator, plan, texts, label_smoothing=smoothing, score_options=options)

    def warm_up(self):
        """Runs a batch of every shape before the long run: what does not fit into memory fails in the first minute."""
        began = time.monotonic()
        self.trainee.warm_up(self.plan.shapes)
        how = "compiled by XLA" if self.config.train.xla else "run without XLA"
        shapes = "One shape" if len(self.plan.shapes) == 1 else f"{len(self.plan.shapes)} shapes"
        self.say(f"{shapes} of batches, each {how} once: {duration(time.monotonic() - began)}")

    def train(self):
        """Trains to the end, or to a signal."""
        state = self.checkpoints.restore(self.trainee, self.say)
        self._check_workers(state["step"] if state else 0)  # and every one has read checkpoints and configuration
        if self._has_only_the_model(state):
            return self._finished_without_checkpoints()
        journal = Journal(self.workdir.path, self.config.train.steps, enabled=self.is_chief)
        state = state or {"step": 0}
        logging, validation, saving = self._callbacks(state, journal)
        trains = state["step"] < self.config.train.steps and not validation.is_out_of_patience
        if self.is_chief and state["step"] and (trains or not self._is_finished(state["step"])):
            self.check()  # and that of a new run was checked at its beginning
        self._begin_or_resume(state, journal)
        saving.set_model(self.trainee)
        saving.catch_up()
        step = self._go_on(state["step"], journal, logging, validation, saving)
        is_stopped = saving.stopped_at is not None and not validation.is_out_of_patience  # what every worker knows
        if is_stopped or (saving.received and not strategies.has_several_workers(self.strategy)):
            self.say(f"Stopped by a signal after step {step}. The same command resumes.")
            return Result(step, None, saving.received)
        return self._end(step)

    def _go_on(self, step, journal, logging, validation, saving):
        """Trains from `step` on, unless there is nothing to do. -> the step that was reached"""
        train = self.config.train
        if step > train.steps:
            self.say(f"It already has more steps than train.steps={train.steps}, so it ends here.")
        elif step < train.steps and validation.is_out_of_patience:
            self.say(f"It was stopped by train.patience={train.patience}; with a larger one, or none, it goes on.")
        elif step < train.steps:
            self.warm_up()
            with saving.listening():
                self._fit(step, journal, [logging, validation, saving])
            return saving.stopped_at or train.steps
        return step

    def _check_workers(self, step):
        """Refuses workers with other settings, text or weights: they would train a model that is none of theirs."""
        settings = self.config.to_dict()
        for section, fields in PATHS.items():  # the same files may lie elsewhere on another machine
            for field in fields:
                del settings[section][field]
        weights = _hash(self.origin.model) if self.origin else None
        same = settings, self.data.train.key, step, self.workdir.model_path.exists(), weights
        if not strategies.is_same(self.strategy, int(digest(same), 16) % 2**53):
            first = self.workdir.load_config().to_dict() if self.workdir.config_path.exists() else {}
            others = ", ".join(differences(first, self.config.to_dict())) or "nothing"
            begins = f", weights {weights[:8]}" if weights else ""
            raise WorkdirError(
                "Every worker must have the configuration, the text, the workdir and the run to start from of the "
                f"first. Received: different ones in some worker. This one is at step {step} with "
                f"{len(self.data.train):,} pairs (text {self.data.train.key[:8]}{begins}), and differs from "
                f"{self.workdir.config_path.absolute()} in: {others}."
            )

    def _begin_or_resume(self, state, journal):
        if state["step"]:
            self._resume(state, journal)
        else:
            self._begin()
        if self.is_chief:
            self.checkpoints.forget_after(state["step"])

    def _begin(self):
        """Starts at step 0 with the weights of `train.start_from`; removes the log of a run that was killed at once."""
        if self.origin is not None:
            pairs = zip(self.trainee.transformer.weights, self.origin.model.weights, strict=True)
            self.trainee.begin_with({ours.path: theirs.numpy() for ours, theirs in pairs})  # it may have another name
            self.say(f"Beginning with the weights of {self.config.train.start_from}.")
            self.origin = None  # its memory
        if self.is_chief:
            self.workdir.log_path.unlink(missing_ok=True)

    def _resume(self, state, journal):
        step = state["step"]
        if step < self.config.train.steps:
            self._check_parts(state["plan"])
        journal.restore(state["journal"], step)
        self.say(f"Resuming at step {step}.")
        self._take_changes(step)

    def _check_parts(self, plan):
        """Refuses to go on with other batches than those that the checkpoint was made with, on whatever machine."""
        if plan != self.plan.state():
            before, replicas = plan["rows_multiple"], self.strategy.num_replicas_in_sync
            raise WorkdirError(
                f"The batches of {self.workdir.path} are made for {before} parts, replicas x train.accumulation; for "
                f"another number they would differ from here on. Received: {replicas} x "
                f"{self.config.train.accumulation}. One device makes the same batches with train.strategy=one_device "
                f"and train.accumulation={before}."
            )

    def _callbacks(self, state, journal):
        """-> Logging, Validation, Checkpointing"""
        train, start = self.config.train, state["step"]
        every = train.valid_steps or max(1, train.steps // 10)
        agree = partial(strategies.from_chief, self.strategy)
        validation = Validation(start, self.judge, journal, every, train.patience, state.get("validation"), agree)
        states = {"journal": journal, "validation": validation, "plan": self.plan}
        saving = Checkpointing(
            start, self.checkpoints, states, validation=validation, config=train, enabled=self.is_chief
        )
        return Logging(start, journal, train.log_steps), validation, saving

    def _fit(self, start, journal, callbacks):
        # In the order of `callbacks`: what is saved after a step depends on the validation at that step.
        batches = strategies.distribute(self.plan.dataset(start), self.strategy)
        journal.begin()
        steps = self.config.train.steps - start
        try:
            self.trainee.fit(batches, steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0, callbacks=callbacks)
        finally:
            journal.clear_line()  # for what is said next

    def _take_changes(self, step):
        if self.is_chief and self.changes:
            self.workdir.change_config(self.config, step)
            self.say("\n    ".join(["The configuration has changed:", *self.changes]))

    def _has_only_the_model(self, state):
        """Whether there is a finished model and no checkpoint of its last step, from which it could be made again."""
        if not self.workdir.model_path.exists():
            return False
        metadata = self.workdir.load_metadata() or {}
        return state is None or (state["step"] < metadata.get("step", 0) and self._is_at_its_end(metadata))

    def _is_at_its_end(self, metadata):
        """Whether a run whose model has this metadata has no more to train: it has its steps, or patience ended it."""
        train, ended_it = self.config.train, metadata.get("patience")
        by_patience = None not in (train.patience, ended_it) and train.patience <= ended_it
        return metadata["step"] == train.steps or by_patience

    def _finished_without_checkpoints(self):
        """Ends a finished run whose last checkpoints were removed; refuses to train over a model of other origin."""
        metadata = self.workdir.load_metadata()
        if metadata is None or "step" not in metadata:
            raise WorkdirError(
                f"A run begins in a new folder, or where its checkpoints are. {self.workdir.path} has a model.keras "
                "that was not trained there; give another --workdir."
            )
        step, train = metadata["step"], self.config.train
        if not self._is_at_its_end(metadata):
            raise WorkdirError(
                f"Going on after step {step}, where the run was finished, needs a checkpoint; "
                f"{self.workdir.checkpoints} no longer has one. Received: train.steps={train.steps}, "
                f"train.patience={train.patience}. To go on from its weights, give another --workdir and "
                f"train.start_from={self.workdir.path}."
            )
        self._take_changes(step)
        if self.is_chief and not self._is_finished(step):
            self.say(
                "It would be judged otherwise now, but the checkpoint of its last step is gone: model, scores and "
                "export stay as they were; keras-transformer evaluate scores the model, python -m export exports it."
            )
        return self._end(step, is_finished=True)

    def _is_finished(self, step):
        """Whether the finished model is that of `step`, and was judged as it would be now."""
        metadata = self.workdir.load_metadata() or {}
        return metadata.get("step") == step and metadata.get("judged_on") == self.judged_on

    def _end(self, step, is_finished=False):
        """The chief finishes the model; all wait for it, since a worker that left would take the chief with it."""
        metadata = {}
        if self.is_chief:
            if is_finished or self._is_finished(step):
                metadata = self.workdir.load_metadata()
                self.say(f"Finished at step {step}: {self.workdir.model_path}")
            else:
                metadata = finish(self, step)
            self.deliver()
        strategies.barrier(self.strategy)
        return Result(step, metadata, None)

    @property
    def judged_on(self):
        """A digest of what the choice of the weights and the report depend on, besides the checkpoints."""
        return digest([self.judge.judged_on, self.data.test_text, self.config.train.average_checkpoints])


def evenly(items, most):
    """At most `most` of the items, spread evenly over the list, because it may be sorted by length."""
    number = min(most, len(items))
    return [items[i * len(items) // number] for i in range(number)]


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
            return Run(config, workdir, strategy, check=check, deliver=deliver).train()
    finally:
        workdir.unlock()


def _hash(model):
    """A hash of the weights of a model."""
    hashed = hashlib.sha256()
    for variable in model.weights:
        hashed.update(variable.numpy())
    return hashed.hexdigest()


def _nothing(*_):
    pass
