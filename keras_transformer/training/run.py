"""The parts of one training run, made in the order in which they need each other."""

import time

import keras
import tensorflow as tf

from keras_transformer import evaluation, model_folder
from keras_transformer.config import Config
from keras_transformer.data.batches import BatchPlan
from keras_transformer.data.digests import digest
from keras_transformer.data.prepare import prepare
from keras_transformer.gpu import add_in_order, multiply_in_float32
from keras_transformer.progress import duration
from keras_transformer.screen import say
from keras_transformer.tokenizer import Tokenizers
from keras_transformer.training import strategy as strategies
from keras_transformer.training.checkpoints import Checkpoints
from keras_transformer.training.origin import load_origin
from keras_transformer.training.step import Trainee
from keras_transformer.training.validation import Judge
from keras_transformer.training.workdir import Workdir
from keras_transformer.translator import Translator


class Run:
    """What a run is made of.

    Args:
        config, workdir, strategy: what is trained, where and on what.
        check: called by the chief before the run begins, or goes on that is not finished; its error ends the run.
        deliver: called by the chief once the finished model is there.

    Attributes:
        data: the text, as `prepare` returns it.
        plan: the `BatchPlan` of the training set.
        trainee: the model that is trained, with its optimizer.
        judge: what judges its weights.
        checkpoints: the `Checkpoints` of the workdir.
        is_chief: whether this is the one of several workers that writes.
        origin: the run that a new one starts from, or None.
        changes: what has changed in the configuration of one that goes on.
    """

    def __init__(self, config: Config, workdir: Workdir, strategy: tf.distribute.Strategy, *, check=None, deliver=None):
        self.config, self.workdir, self.strategy = config, workdir, strategy
        self.check, self.deliver = check or _nothing, deliver or _nothing
        multiply_in_float32()
        if config.train.deterministic:
            add_in_order()
        keras.utils.set_random_seed(config.train.seed)  # now: later it would destroy tensorflow-text's tokenizers
        self.is_chief = strategies.is_chief(strategy)
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

    def say(self, text):
        """Of several workers one speaks."""
        if self.is_chief:
            say(text)

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

    @property
    def judged_on(self):
        """A digest of what the choice of the weights and the report depend on, besides the checkpoints."""
        return digest([self.judge.judged_on, self.data.test_text, self.config.train.average_checkpoints])

    def warm_up(self):
        """Runs a batch of every shape before the long run: what does not fit into memory fails in the first minute."""
        began = time.monotonic()
        self.trainee.warm_up(self.plan.shapes)
        how = "compiled by XLA" if self.config.train.xla else "run without XLA"
        shapes = "One shape" if len(self.plan.shapes) == 1 else f"{len(self.plan.shapes)} shapes"
        self.say(f"{shapes} of batches, each {how} once: {duration(time.monotonic() - began)}")

    def take_changes(self, step):
        """Writes the configuration that goes on after `step`, where it has changed."""
        if self.is_chief and self.changes:
            self.workdir.change_config(self.config, step)
            self.say("\n    ".join(["The configuration has changed:", *self.changes]))


def evenly(items, most):
    """At most `most` of the items, spread evenly over the list, because it may be sorted by length."""
    number = min(most, len(items))
    return [items[i * len(items) // number] for i in range(number)]


def _nothing():
    pass
