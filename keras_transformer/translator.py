"""Strings to strings: the one place where text meets the model.

translator = Translator.load("runs/demo")
translator.translate(["the dog sees the cat ."])        # -> ["der Hund sieht die Katze ."]
translator.model, translator.tokenizers                 # the Keras model, SentencePiece
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import Config, DecodeConfig
from keras_transformer.decoding import BeamSettings, beam_search
from keras_transformer.decoding.types import Constraints
from keras_transformer.model import Transformer
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizers

TOKENS_PER_BATCH = 2048  # source pieces, padding included, that are searched together


class Translation(NamedTuple):
    text: str
    score: float  # log_prob / length penalty
    log_prob: float  # of all pieces, end of sentence included


class Translator:
    """A model with its tokenizers and the rules of the search.

    Args:
        model: a `Transformer`.
        tokenizers: its `Tokenizers`.
        decode: the `DecodeConfig`.
    """

    def __init__(self, model: Transformer, tokenizers: Tokenizers, decode: DecodeConfig | None = None):
        self.model, self.tokenizers = model, tokenizers
        self.decode = decode or DecodeConfig()

    @classmethod
    def load(cls, workdir, **decode) -> Self:
        """The finished model of a run; `decode` changes fields of its `DecodeConfig`."""
        workdir = Path(workdir)
        model_path = workdir / "model.keras"
        if not model_path.exists():
            raise FileNotFoundError(
                f"A finished run holds a model.keras, written by train_keras.py. None in {workdir}."
            )
        config = Config.from_dict(json.loads((workdir / "config.json").read_text(encoding="utf-8")))
        model = keras.saving.load_model(model_path, compile=False)
        return cls(model, Tokenizers.load(workdir), config.decode.replace(**decode))

    def translate(self, texts: Sequence[str]) -> list[str]:
        """The best translation of every text, in order."""
        return [translations[0].text for translations in self.translate_nbest(texts, num_hypotheses=1)]

    def translate_nbest(self, texts: Sequence[str], num_hypotheses: int) -> list[list[Translation]]:
        """The best translations of every text, best first. A text of nothing but blanks is its own translation."""
        found = [[Translation("", 0.0, 0.0)] for _ in texts]
        full = [i for i, text in enumerate(texts) if text.strip()]
        sources = self._encode([texts[i] for i in full])
        for rows in batches_by_length([len(ids) for ids in sources], TOKENS_PER_BATCH):
            hypotheses = self._search(pad([sources[row] for row in rows]), num_hypotheses)
            for row, *beams in zip(rows, *(x.numpy() for x in hypotheses), strict=True):
                found[full[row]] = self._translations(*beams)
        return found

    @property
    def _longest(self):
        """The most positions of a side, or None where there is no limit."""
        return self.model.config.max_positions if self.model.config.positions == "learned" else None

    def _encode(self, texts):
        """The ids of the texts; what is longer than learned positions reach is cut, the end of sentence kept."""
        sources, longest = self.tokenizers.source.encode(texts), self._longest
        return [[*ids[: longest - 1], EOS_ID] if longest and len(ids) > longest else ids for ids in sources]

    def _translations(self, ids, scores, log_probs, lengths):
        """What one sentence's hypotheses say; a list is shorter where fewer were found."""
        ids = ids[: np.count_nonzero(lengths)]
        texts = self.tokenizers.target.decode(
            [row[:length].tolist() for row, length in zip(ids, lengths, strict=False)]
        )
        return [Translation(*fields) for fields in zip(texts, scores.tolist(), log_probs.tolist(), strict=False)]

    @tf.function(reduce_retracing=True, autograph=False)
    def _search(self, source_ids, num_hypotheses):
        """(B, S) -> Hypotheses"""
        width = max(self.decode.beam_width, num_hypotheses)
        settings = BeamSettings(
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            beam_width=width,
            num_hypotheses=num_hypotheses,
            alpha=self.decode.alpha,
        )
        longest = self._longest or tf.int32.max
        limits = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32) + self.decode.extra_length  # (B,)
        max_length = tf.minimum(tf.shape(source_ids)[1] + self.decode.extra_length, longest)
        memory, memory_mask = self.model.encode(source_ids)
        cache = self.model.start_cache(memory, memory_mask, max_length, beam_width=width)
        return beam_search(self.model.step, self.model.reorder, cache, Constraints(limits), settings, max_length)


def batches_by_length(lengths: Sequence[int], tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in batches of similar lengths, longest first; a batch holds at most `tokens`, padding included."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, tokens // lengths[order[start]])
        yield order[start:stop]
        start = stop


def pad(sequences: Sequence[Sequence[int]]) -> tf.Tensor:
    """Sequences of ids as one tensor, filled up with padding. -> (B, S)"""
    ids = np.full((len(sequences), max(map(len, sequences))), PAD_ID, np.int32)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return tf.constant(ids)
