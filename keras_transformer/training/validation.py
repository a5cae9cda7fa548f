"""How good a set of weights is: loss, perplexity and BLEU on the validation set, with some translations to read."""

import itertools
import math
from typing import NamedTuple

import tensorflow as tf

from keras_transformer.data.digests import digest
from keras_transformer.evaluation import bleu
from keras_transformer.losses import cross_entropies
from keras_transformer.metrics import perplexity
from keras_transformer.report.words import shown
from keras_transformer.training.variables import set_weights


class Sample(NamedTuple):
    source: str
    reference: str
    translation: str


class Verdict(NamedTuple):
    loss: float  # label-smoothed, a token
    perplexity: float
    bleu: float | None  # None where nothing is translated
    samples: tuple[Sample, ...]

    def record(self):
        figures = {"loss": self.loss, "perplexity": self.perplexity, "bleu": self.bleu}
        return {name: None if value is None or not math.isfinite(value) else value for name, value in figures.items()}

    def describe(self):
        lines = [f"validation loss {self.loss:.3f}, perplexity {self.perplexity:.2f}"]
        if self.bleu is not None:
            lines[0] += f", BLEU {self.bleu:.2f}"
        for sample in self.samples:
            source, reference, translation = map(shown, sample)
            lines += [f"    {source}", f"      -> {translation}", f"      == {reference}"]
        return "\n".join(lines)


class Judge:
    """Judges weights with a model of its own, outside of every strategy.

    Args:
        translator: a `Translator`; its model is overwritten with the weights that are judged.
        plan: the `BatchPlan` of the validation set.
        texts: the pairs of text that are translated.
        label_smoothing: of the loss.
        score_options: of `evaluation.bleu`.
        num_samples: how many translations a verdict shows.
    """

    def __init__(self, translator, plan, texts, *, label_smoothing, score_options=None, num_samples=3):
        self.translator, self.plan, self.texts = translator, plan, list(texts)
        self.label_smoothing, self.num_samples = label_smoothing, num_samples
        self.score_options = score_options or {}
        # Verdicts can be compared only where these are the same.
        self.judged_on = digest([plan.corpus.key, self.texts, self.score_options, translator.decode.to_dict()])

    def verdict(self, weights):
        """The figures of `weights`, {variable path: array}."""
        set_weights(self.translator.model, weights)
        sums = sum(self._sums(batch).numpy() for batch in self.plan.epoch_dataset())
        loss, nll = float(sums[0] / sums[2]), float(sums[1] / sums[2])
        sources, references = [source for source, _ in self.texts], [target for _, target in self.texts]
        translations = self.translator.translate(sources)
        found = bleu(translations, references, **self.score_options) if references else None
        rows = zip(sources, references, translations, strict=True)
        samples = tuple(Sample(*row) for row in itertools.islice(rows, self.num_samples))
        return Verdict(loss, perplexity(nll), found, samples)

    @tf.function(reduce_retracing=True, autograph=False)
    def _sums(self, batch):
        (source_ids, target_ids), labels, weights = batch
        logits = self.translator.model((source_ids, target_ids), training=False)
        smoothed, nll = cross_entropies(labels, logits, self.label_smoothing)
        sums = [tf.reduce_sum(smoothed * weights), tf.reduce_sum(nll * weights), tf.reduce_sum(weights)]
        return tf.cast(tf.stack(sums), tf.float64)
