"""Strings to strings: the one place where text meets the model.

translator = Translator.load("runs/demo")
translator.translate(["the dog sees the cat ."])        # -> ["der Hund sieht die Katze ."]
translator.model, translator.tokenizers                 # the Keras model, SentencePiece
"""

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import inference
from keras_transformer.config import Config, DecodeConfig
from keras_transformer.decoding import length_penalty
from keras_transformer.model import AttentionMaps, Transformer
from keras_transformer.tokenizer import EOS_ID, PAD_ID, Tokenizer, Tokenizers

TOKENS_PER_BATCH = 2048  # pieces, padding included, that go through the model together
log = logging.getLogger(__name__)


class Translation(NamedTuple):
    text: str
    score: float  # log_prob / length penalty
    log_prob: float  # of all pieces, end of sentence included


class Scored(NamedTuple):
    """How likely a given translation is."""

    score: float  # log_prob / length penalty
    log_prob: float  # of all pieces
    pieces: list[str]  # of the translation, end of sentence included
    log_probs: list[float]  # of each piece, given those before it


class Alignment(NamedTuple):
    """Who attends to whom when a given translation is written."""

    source_pieces: list[str]  # what is attended to, end of sentence included
    target_pieces: list[str]  # row t of a map is the step that writes piece t
    maps: AttentionMaps  # as arrays: (layers, H, S, S), (layers, H, T, T) and (layers, H, T, S)


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
        decode = config.decode.replace(**decode)
        return cls(keras.saving.load_model(model_path, compile=False), Tokenizers.load(workdir), decode)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what is read; `tokenizers` has both, which mostly are one."""
        return self.tokenizers.source

    # --- what can be asked

    def translate(self, texts: Sequence[str]) -> list[str]:
        """The best translation of every text, in order. A text of nothing but blanks is translated as ""."""
        return [translations[0].text for translations in self.translate_nbest(texts, num_hypotheses=1)]

    def translate_nbest(self, texts: Sequence[str], num_hypotheses: int) -> list[list[Translation]]:
        """The best translations of every text, best first; fewer where there are not so many."""
        return self._translations(texts, lambda source_ids, rows: self._search(source_ids, num_hypotheses))

    def translate_prefix(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[Translation]:
        """The best translation of every text among those that begin with its prefix."""
        if len(prefixes) != len(texts):
            raise ValueError(f"Every text needs its prefix. Received: {len(texts)} texts, {len(prefixes)} prefixes.")
        prefix_ids = [ids[:-1] for ids in self._encode(self.tokenizers.target, prefixes)]  # without the end of sentence

        def ask(source_ids, rows):
            return self._search(source_ids, 1, pad([prefix_ids[row] for row in rows]))

        return [best for best, *_ in self._translations(texts, ask)]

    def sample(self, texts: Sequence[str], seeds: int | Sequence[int], temperature: float = 1.0) -> list[Translation]:
        """A random translation of every text; the same text and seed give the same one."""
        seeds = np.broadcast_to(np.asarray(seeds, np.int64), (len(texts),))

        def ask(source_ids, rows):
            return self._sample(source_ids, tf.constant(seeds[rows]), tf.constant(temperature, tf.float32))

        return [drawn for drawn, *_ in self._translations(texts, ask)]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
        """How likely the model finds each target as the translation of its source, by its pieces and in all."""
        found: list[Scored | None] = [None] * len(sources)
        source_ids, target_ids = self._encode_pairs(sources, targets)
        lengths = [len(source) + len(target) for source, target in zip(source_ids, target_ids, strict=True)]
        for rows in batches_by_length(lengths, TOKENS_PER_BATCH):
            batch = (pad([side[row] for row in rows]) for side in (source_ids, target_ids))
            for row, log_probs in zip(rows, self._token_log_probs(*batch).numpy(), strict=True):
                found[row] = self._scored(target_ids[row], log_probs)
        return found

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
        """The attention weights of every layer and head for each pair."""
        found = []
        for source, target in zip(*self._encode_pairs(sources, targets), strict=True):
            maps = inference.alignments(self.model, pad([source]), pad([target]))
            pieces = self.tokenizers.source.pieces(source), self.tokenizers.target.pieces(target)
            found.append(Alignment(*pieces, AttentionMaps(*(x.numpy()[:, 0] for x in maps))))
        return found

    # --- text to ids and back

    def _translations(self, texts, ask):
        """What `ask(source_ids, rows)` finds for every text; `rows` are the texts that the rows of ids stand for."""
        found = [[Translation("", 0.0, 0.0)] for _ in texts]
        full = np.array([i for i, text in enumerate(texts) if text.strip()], np.int64)
        sources = self._encode(self.tokenizers.source, [texts[i] for i in full])
        for rows in batches_by_length([len(ids) for ids in sources], TOKENS_PER_BATCH):
            hypotheses = ask(pad([sources[row] for row in rows]), full[rows])
            for row, *beams in zip(full[rows], *(x.numpy() for x in hypotheses), strict=True):
                found[row] = self._read(*beams)
        return found

    def _read(self, ids, scores, log_probs, lengths):
        """What one sentence's hypotheses say; a list is shorter where fewer were found."""
        ids = ids[: np.count_nonzero(lengths)]
        texts = self.tokenizers.target.decode(
            [row[:length].tolist() for row, length in zip(ids, lengths, strict=False)]
        )
        return [Translation(*fields) for fields in zip(texts, scores.tolist(), log_probs.tolist(), strict=False)]

    def _scored(self, ids, log_probs):
        log_probs = log_probs[: len(ids)]
        total = float(log_probs.sum())
        score = total / float(length_penalty(len(ids), self.decode.alpha))
        return Scored(score, total, self.tokenizers.target.pieces(ids), log_probs.tolist())

    def _encode_pairs(self, sources, targets):
        if len(sources) != len(targets):
            raise ValueError(f"Every source needs its target. Received: {len(sources)} and {len(targets)}.")
        return self._encode(self.tokenizers.source, sources), self._encode(self.tokenizers.target, targets)

    def _encode(self, tokenizer, texts):
        """The ids of the texts; what is too long is cut, the end of sentence kept."""
        limit = inference.longest_input(self.model, self.decode)
        encoded = zip(tokenizer.encode(texts), texts, strict=True)
        return [ids if len(ids) <= limit else _cut(ids, limit, text) for ids, text in encoded]

    # --- ids to ids, compiled

    @tf.function(reduce_retracing=True, autograph=False)
    def _search(self, source_ids, num_hypotheses, prefix_ids=None):
        return inference.search(
            self.model, source_ids, self.decode, num_hypotheses=num_hypotheses, prefix_ids=prefix_ids
        )

    @tf.function(reduce_retracing=True, autograph=False)
    def _sample(self, source_ids, seeds, temperature):
        return inference.sample(self.model, source_ids, self.decode, seeds=seeds, temperature=temperature)

    @tf.function(reduce_retracing=True, autograph=False)
    def _token_log_probs(self, source_ids, labels):
        return inference.token_log_probs(self.model, source_ids, labels)


def _cut(ids, limit, text):
    log.warning("Read %d of %d pieces (decode.max_input_length) of: %.60r", limit, len(ids), text)
    return [*ids[: limit - 1], EOS_ID]


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
