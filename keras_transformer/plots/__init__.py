"""Pictures: learning curves, attention, positions, schedules, scores by length. Plain arrays in, a file out.

`path` is a file name or an open binary file in all of them. matplotlib is imported when the first picture is drawn, and
used without pyplot: no window, no global state. `sparkline` needs no matplotlib at all.
"""

from keras_transformer.plots.curves import by_length, learning_curve, schedule, sparkline
from keras_transformer.plots.maps import attention, attention_of_sentence, positions

__all__ = [
    "attention",
    "attention_of_sentence",
    "by_length",
    "learning_curve",
    "positions",
    "schedule",
    "sparkline",
]
