"""The judge: figures of given weights, on a model of its own."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer import DecodeConfig, TrainConfig, Transformer
from keras_transformer.losses import cross_entropies
from keras_transformer.training.step import Trainee
from keras_transformer.training.validation import Judge, Sample
from tests.training.batches import dataset, random_batches


class Parrot:
    """A translator that knows the references by heart, all but the first."""

    def __init__(self, model, **decode):
        self.model, self.decode = model, DecodeConfig(**decode)

    def translate(self, sources):
        return ["wrong"] + [source.upper() for source in sources[1:]]


class Plan:
    def __init__(self, batches, key="a set"):
        self.batches, self.corpus = batches, SimpleNamespace(key=key)

    def epoch_dataset(self):
        return dataset(self.batches)


def make_model(seed):
    keras.utils.set_random_seed(seed)
    return Transformer(
        53, d_model=16, d_ff=31, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, name="transformer"
    )


TEXTS = [(f"the small line number {i}", f"THE SMALL LINE NUMBER {i}") for i in range(5)]


@pytest.fixture
def judge():
    batches = random_batches(2) + random_batches(1, source_length=3)
    return Judge(Parrot(make_model(1)), Plan(batches), TEXTS, label_smoothing=0.1, num_samples=2)


def test_loss_and_perplexity_are_means_over_all_tokens_of_the_judged_weights(judge):
    judged = make_model(2)
    verdict = judge.verdict({v.path: v.numpy() for v in judged.trainable_variables})
    sums = np.zeros(3)
    for inputs, labels, weights in judge.plan.batches:
        smoothed, nll = cross_entropies(labels, judged(inputs), 0.1)
        sums += [np.sum(smoothed * weights), np.sum(nll * weights), np.sum(weights)]
    assert verdict.loss == pytest.approx(sums[0] / sums[2], rel=1e-5)
    assert verdict.perplexity == pytest.approx(np.exp(sums[1] / sums[2]), rel=1e-5)


def test_bleu_and_samples_are_of_the_texts(judge):
    verdict = judge.verdict({v.path: v.numpy() for v in judge.translator.model.trainable_variables})
    assert 50 < verdict.bleu < 100
    assert [sample.translation for sample in verdict.samples] == ["wrong", "THE SMALL LINE NUMBER 1"]
    assert "the small line number 1" in verdict.describe()
    assert "-> \\u001b[2J" in verdict._replace(samples=(Sample("", "", "\x1b[2J"),)).describe()  # clears no screen


def test_bleu_is_scored_as_the_options_say(judge):
    texts = [(source, source.capitalize()) for source, _ in TEXTS]  # the translations are in capitals
    weights = {v.path: v.numpy() for v in judge.translator.model.trainable_variables}
    strict, folding = (
        Judge(judge.translator, judge.plan, texts, label_smoothing=0.1, score_options=options).verdict(weights).bleu
        for options in (None, dict(lowercase=True))
    )
    assert strict < 10 and folding > 50


def test_what_it_judges_on_has_a_name_of_its_own(judge):
    def name_of(texts, **options):
        return Judge(judge.translator, judge.plan, texts, label_smoothing=0.1, score_options=options).judged_on

    names = [name_of(TEXTS), name_of(TEXTS[1:]), name_of(TEXTS, lowercase=True), name_of(TEXTS[::-1])]
    assert len(set(names)) == 4 and names[0] == judge.judged_on
    judge.translator = Parrot(judge.translator.model, alpha=1.5)
    assert name_of(TEXTS) not in names


@pytest.mark.parametrize("texts", [TEXTS, []])
def test_it_judges_on_the_whole_set_whatever_is_translated(judge, texts):
    def name_of(plan):
        return Judge(judge.translator, plan, texts, label_smoothing=0.1).judged_on

    assert name_of(Plan([])) == name_of(Plan([])) != name_of(Plan([], "another set"))


def test_without_texts_the_loss_still_counts(judge):
    judge.texts = []
    judge.translator.translate = lambda sources: []
    verdict = judge.verdict({v.path: v.numpy() for v in judge.translator.model.trainable_variables})
    assert verdict.bleu is None and verdict.record()["bleu"] is None and verdict.loss > 0
    assert "BLEU" not in verdict.describe()


def test_the_moving_average_is_judged_where_there_is_one():
    trainee = Trainee(make_model(3), TrainConfig(ema_decay=0.9, xla=False))
    for average in trainee.ema:
        average.assign(average + 1)
    weights = trainee.judged_weights()
    for variable, average in zip(trainee.transformer.trainable_variables, trainee.ema, strict=True):
        np.testing.assert_array_equal(weights[variable.path], average.numpy())
    plain = Trainee(make_model(3), TrainConfig(xla=False))
    for variable in plain.transformer.trainable_variables:
        np.testing.assert_array_equal(plain.judged_weights()[variable.path], variable.numpy())
