"""Scores as sums of counts, and the bootstrap over them.

A sacreBLEU metric counts every sentence once (n-grams, lengths, edits) and makes its score of the sum of these counts.
A resample is then the same sum, with every sentence taken as often as it was drawn:

    sentence         a        b        c        sum = a + b + c        -> the score
    drawn            2        0        1        sum = 2a + c           -> one resample of it

The draws are those of `sacrebleu --confidence`, so the ± that it prints is half the width of the interval here.
"""

from typing import Any, NamedTuple

import numpy as np


class Counts(NamedTuple):
    """What one sacreBLEU metric counts in every sentence of one output."""

    metric: Any  # a sacrebleu.metrics.Metric
    rows: np.ndarray  # (sentences, figures)

    def value(self):
        return self._result(self.rows.sum(axis=0)).score

    def sentence_values(self):
        return [self._result(row).score for row in self.rows]

    def resample(self, num_bootstrap, seed):
        """The scores of `num_bootstrap` resamples. Outputs of equally many sentences get the same draws."""
        rng, n = np.random.default_rng(seed), len(self.rows)
        drawn = (np.bincount(rng.choice(n, size=n), minlength=n) for _ in range(num_bootstrap))
        return np.array([self._result(times @ self.rows).score for times in drawn])

    def interval(self, num_bootstrap, seed):
        return middle(self.resample(num_bootstrap, seed)) if num_bootstrap else None

    def signature(self, num_bootstrap, seed):
        signature = self.metric.get_signature()
        if num_bootstrap:
            signature.update("bs", num_bootstrap)
            signature.update("seed", seed)
        return str(signature)

    def length_ratio(self):
        """Tokens of the hypotheses / of the references; only BLEU counts them."""
        return self._result(self.rows.sum(axis=0)).ratio

    def name(self):
        return self._result(self.rows[0]).name

    def _result(self, total):
        return self.metric._compute_score_from_stats(total.tolist())


def count(metric, hypotheses, references) -> Counts:
    """The counts of a metric. sacreBLEU has no public way to them; the tests compare the scores with its own."""
    return Counts(metric, np.array(metric._extract_corpus_statistics(hypotheses, [references]), "float64"))


def middle(values) -> tuple[float, float]:
    """The interval that holds the middle 95 % of the values."""
    ordered, cut = np.sort(values), len(values) // 40
    return float(ordered[cut]), float(ordered[-1 - cut])
