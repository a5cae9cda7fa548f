"""Search: from a step function to hypotheses. It knows ids, log-probabilities and an opaque state: no model, no text.

    beam_search(step, reorder, state, constraints, settings, max_length) -> Hypotheses
    generate(step, state, choose, constraints, settings, max_length)     -> Hypotheses; choose: greedy or sampler(...)

Everything runs eagerly, in a `tf.function` and under `jit_compile=True`. No value crosses the batch axis: a sentence
gets the same hypotheses alone, in any batch and at any padding.

Shapes, as the comments at the ends of lines write them:

    B batch   W beam width   T max_length, the positions there is room for   P prefix length   V vocabulary
    C candidates of a sentence   K those before forbidden ids are taken out   N = B * W
"""

from keras_transformer.decoding.beam import BeamSettings
from keras_transformer.decoding.beam_search import beam_search
from keras_transformer.decoding.sample import generate, greedy, sampler
from keras_transformer.decoding.scoring import length_penalty
from keras_transformer.decoding.types import (
    Choose,
    Constraints,
    Hypotheses,
    ReorderFn,
    Room,
    SearchSettings,
    StepFn,
    Steps,
)

__all__ = [
    "BeamSettings",
    "Choose",
    "Constraints",
    "Hypotheses",
    "ReorderFn",
    "Room",
    "SearchSettings",
    "StepFn",
    "Steps",
    "beam_search",
    "generate",
    "greedy",
    "length_penalty",
    "sampler",
]
