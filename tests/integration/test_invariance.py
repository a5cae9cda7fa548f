"""What a sentence becomes does not depend on its company: a trained model, on real sentences, as everybody has it."""

import random

import pytest

from keras_transformer.fast import products_in_graph
from keras_transformer.translator import Translator
from tests.integration.runs import ROOT

MODEL = ROOT / "examples/tatoeba_en_de/model"
SUBJECTS = ("I", "My old friends from Berlin", "The teacher who lives next door")
ENDINGS = (
    "could not come.",
    "wanted to buy a new car, but there was not enough money.",
    "never forgot what happened on that day.",
    "had to help the children with their homework before dinner because nobody else was at home.",
)
TEXTS = [f"{subject} {ending}" for subject in SUBJECTS for ending in ENDINGS]
TEXTS += [
    "Stop!",
    "Where is the station?",
    "Tom laughed.",
    "What time is it in Tokyo, and is it dark there?",
]


def translations(tokens_per_batch, texts):
    translator = Translator.load(MODEL, xla=False, tokens_per_batch=tokens_per_batch)
    return [best for [best] in translator.translate_nbest(texts, 1)]


def test_a_sentence_has_the_same_translation_alone_in_any_batch_and_in_any_order(monkeypatch):
    for name in ("GRAPH_LARGE", "LEAST_PART"):  # few rows are multiplied otherwise than many, as in a larger model
        monkeypatch.setattr(products_in_graph, name, 1)
    alone, together = (translations(size, TEXTS) for size in (1, 100_000))
    shuffled = random.Random(5).sample(range(len(TEXTS)), len(TEXTS))
    in_another_order = translations(200, [TEXTS[i] for i in shuffled])
    assert len({one.text for one in alone}) == len(TEXTS)
    for found in together, [in_another_order[shuffled.index(i)] for i in range(len(TEXTS))]:
        assert [one.text for one in found] == [one.text for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], rel=1e-4)
