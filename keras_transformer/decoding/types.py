"""What goes into a search and what comes out of it."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

State = Any  # a tree of tensors, axis 0 of each is the batch; only the step and reorder functions look inside a row


class StepFn(Protocol):
    def __call__(self, ids: tf.Tensor, index: tf.Tensor, state: State) -> tuple[tf.Tensor, State]:
        """The logits that follow `ids`, the ids of position `index`. (B, W), scalar, state -> (B, W, V), state

        Position 0 holds bos. V must be known statically. An id whose logit is minus infinity cannot come. Later steps
        may have fewer rows, in ids and state alike, so whatever belongs to one sentence has to be in the state. Step 0
        may be called for one beam, W = 1, with a state that has been reordered to one beam.
        """


class Room(NamedTuple):
    """How a state gets room for more steps, where it has none at first."""

    grow: Callable[[State, tf.Tensor], State]  # state, steps -> the state with room for `steps`, no fewer than it has
    # How many steps the sentences get room for together, see beam_search.py. None: the state grows whenever it is full.
    first_steps: tf.Tensor | int | None = None


class Steps(NamedTuple):
    """Makes the step functions for many rows and for few, each called before the loop that needs it."""

    many: Callable[[], StepFn]
    few: Callable[[], StepFn]  # also for the last sentences of a batch
    few_rows: int = 0  # a search of no more rows than this, B * W, uses `few` from the beginning; not under XLA
    room: Room | None = None  # None: the state has room for all steps
    first_apart: bool = False  # many rows do step 0 before their loop, with one beam a sentence: all are still alike


class ReorderFn(Protocol):
    def __call__(self, state: State, parents: tf.Tensor) -> State:
        """The state after beam w has become a continuation of beam parents[b, w]. state, (B, W) -> state

        It has as many beams as `parents`, whatever it had before.
        """


class Choose(Protocol):
    def __call__(self, logits: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """The next id of every sentence; ids that may not come have minus infinity. (B, V), scalar -> (B,) int32"""


class Hypotheses(NamedTuple):
    """The outcome of a search, best first. A place that no hypothesis fills has score -inf, length 0 and only pad."""

    ids: tf.Tensor  # (B, W, T) int32, eos included, pad behind the end
    scores: tf.Tensor  # (B, W) float32, log_probs / length penalty
    log_probs: tf.Tensor  # (B, W) float32, of all tokens, a forced prefix and eos included
    lengths: tf.Tensor  # (B, W) int32, eos included


class Constraints(NamedTuple):
    """What each sentence asks of its hypotheses; None where no sentence asks."""

    max_lengths: tf.Tensor  # (B,) the limit of tokens, eos included; the paper's is input length + 50
    min_lengths: tf.Tensor | None = None  # (B,) eos may not come before this length is reached, eos included
    prefix_ids: tf.Tensor | None = None  # (B, P) what every hypothesis begins with
    prefix_lengths: tf.Tensor | None = None  # (B,) how many of the prefix_ids count


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What holds for every sentence of a search."""

    pad_id: int  # fills up behind the end; never generated
    bos_id: int  # the input of step 0; never generated
    eos_id: int
    alpha: float  # of the length penalty; 0: score = log_prob
    no_repeat_ngram: int = 0  # no hypothesis repeats a sequence of this many tokens; 0: off

    def __post_init__(self):
        if not self.alpha >= 0:  # a negative one would reward short hypotheses, and early stopping would be unsound
            raise ValueError(f"`alpha` must be at least 0. Received: alpha={self.alpha!r}.")
        if self.no_repeat_ngram < 0:
            raise ValueError(f"`no_repeat_ngram` must be at least 0. Received: {self.no_repeat_ngram!r}.")
