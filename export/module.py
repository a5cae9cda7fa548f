"""The translator as a `tf.Module`: what a server runs.

    serving_default   text (B,)                  -> translation (B,), score (B,)
    translate_nbest   text (B,)                  -> translations (B, W), scores (B, W), best first
    score             source (B,), target (B,)   -> log_prob (B,), num_tokens (B,), end of sentence included
    translate_ids     ids (B, S)                 -> ids (B, T), lengths (B,), score (B,)

A request is answered together with those of strangers, so no request may be an error: text becomes valid UTF-8, what
is too long is cut, ids that do not exist become <unk>. Blank text has the translation "" with score 0. Nothing is
compiled with XLA, which TF Serving switches off.
"""

import dataclasses

import tensorflow as tf

from keras_transformer.decoding import BeamSettings, beam_search
from keras_transformer.decoding.types import Constraints
from keras_transformer.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_transformer.translator import Translator

BLANK = r"[\t-\r\x1c-\x20\x{85}\pZ]*"  # the characters of Python's str.isspace
BROKEN_END = r"\x{FFFD}{1,3}\z"  # what cutting a character of four bytes leaves, once it has been replaced


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one sentence may cost; the rest is cut off."""

    max_input_bytes: int = 8192
    max_input_tokens: int = 512  # end of sentence included; the output may have `extra_length` more

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}.")


class ServingTranslator(tf.Module):
    """A `Translator` with everything in the graph.

    Args:
        translator: the `Translator`; it must outlive this module, which uses its weights.
        limits: the `Limits`.
    """

    def __init__(self, translator: Translator, limits: Limits | None = None):
        super().__init__()
        # A Translator is nothing that TensorFlow tracks. To track its Keras model would save every weight twice.
        self._translator = translator
        self._limits = limits or Limits()
        self.weights = [variable.value for variable in translator.model.weights]
        tokenizers = translator.tokenizers
        self.source_tokenizer = tokenizers.source.graph_tokenizer()
        self.target_tokenizer = self.source_tokenizer if tokenizers.shared else tokenizers.target.graph_tokenizer()

    def signatures(self):
        """{name: tf.function} of what is served. Dimension 0 of every tensor is the batch."""
        text, source, target = (tf.TensorSpec([None], tf.string, name) for name in ("text", "source", "target"))
        served = {
            "serving_default": (self.translate, [text]),
            "translate_nbest": (self.translate_nbest, [text]),
            "score": (self.score, [source, target]),
            "translate_ids": (self.translate_ids, [tf.TensorSpec([None, None], tf.int32, "ids")]),
        }
        return {
            name: tf.function(method, input_signature=specs, autograph=False)
            for name, (method, specs) in served.items()
        }

    def limits(self):
        """The limits that hold, in tokens and bytes, end of sentence included."""
        decode = self._translator.decode
        return {
            "max_input_bytes": self._limits.max_input_bytes,
            "max_input_tokens": self._max_source_length,
            "max_output_tokens": self._max_target_length,
            "extra_length": decode.extra_length,  # of the output, sentence by sentence
            "num_hypotheses": decode.beam_width,  # of translate_nbest
        }

    # --- what is served

    def translate(self, text):
        hypotheses = self._search(self._source_ids(text), num_hypotheses=1)
        translation = self.target_tokenizer.decode_tensor(hypotheses.ids[:, 0])
        return {"translation": translation, "score": hypotheses.scores[:, 0]}

    def translate_nbest(self, text):
        width = self._translator.decode.beam_width
        ids, scores, _, _ = self._search(self._source_ids(text), num_hypotheses=width)  # (B, W, T), (B, W)
        translations = self.target_tokenizer.decode_tensor(tf.reshape(ids, (-1, tf.shape(ids)[2])))  # (B * W,)
        return {"translations": tf.reshape(translations, (-1, width)), "scores": scores}

    def score(self, source, target):
        source_ids = _not_empty(_encode(self.source_tokenizer, self._clean(source), self._max_source_length))
        labels = _not_empty(_encode(self.target_tokenizer, self._clean(target), self._max_target_length))  # (B, T)
        target_ids = tf.pad(labels, [[0, 0], [1, 0]], constant_values=BOS_ID)[:, :-1]
        logits = self._translator.model((source_ids, target_ids))  # (B, T, V)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)  # (B, T)
        counts = labels != PAD_ID
        return {
            "log_prob": -tf.reduce_sum(tf.where(counts, losses, 0.0), axis=1),
            "num_tokens": tf.math.count_nonzero(counts, axis=1, dtype=tf.int32),
        }

    def translate_ids(self, ids):
        """Each row is read up to its end of sentence, so whatever a batch is padded with does no harm."""
        vocab_size = self._translator.tokenizers.source.vocab_size
        is_end = tf.cast(ids == EOS_ID, tf.int32)
        ids = tf.where((ids >= 0) & (ids < vocab_size), ids, UNK_ID)
        ids = tf.where(tf.cumsum(is_end, axis=1, exclusive=True) == 0, ids, PAD_ID)
        hypotheses = self._search(_cut(ids, self._max_source_length), num_hypotheses=1)
        lengths = hypotheses.lengths[:, 0]
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))  # there may be no row
        return {"ids": hypotheses.ids[:, 0, :longest], "lengths": lengths, "score": hypotheses.scores[:, 0]}

    # --- text to ids

    @property
    def _max_source_length(self):
        return self._within_positions(self._limits.max_input_tokens)

    @property
    def _max_target_length(self):
        return self._within_positions(self._limits.max_input_tokens + self._translator.decode.extra_length)

    def _within_positions(self, length):
        config = self._translator.model.config
        return min(length, config.max_positions) if config.positions == "learned" else length

    def _clean(self, text):
        """Valid UTF-8 of at most `max_input_bytes` bytes read. (B,) -> (B,)"""
        too_long = tf.strings.length(text) > self._limits.max_input_bytes
        text = tf.strings.substr(text, 0, self._limits.max_input_bytes)
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
        return tf.where(too_long, tf.strings.regex_replace(text, BROKEN_END, ""), text)

    def _source_ids(self, text):
        """(B,) -> (B, S); a blank text has no ids at all"""
        text = self._clean(text)
        ids = _encode(self.source_tokenizer, text, self._max_source_length)
        return tf.where(tf.strings.regex_full_match(text, BLANK)[:, None], PAD_ID, ids)

    # --- the search

    def _search(self, source_ids, num_hypotheses):
        """(B, S) -> Hypotheses. Nothing becomes nothing, score 0. No score is infinite: JSON has no such number."""
        decode, model = self._translator.decode, self._translator.model
        settings = BeamSettings(
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            beam_width=decode.beam_width,
            num_hypotheses=num_hypotheses,
            alpha=decode.alpha,
        )
        num_tokens = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)  # (B,)
        limits = tf.where(num_tokens == 0, 0, num_tokens + decode.extra_length)
        source_ids = _not_empty(source_ids)
        max_length = tf.minimum(tf.shape(source_ids)[1] + decode.extra_length, self._max_target_length)
        memory, memory_mask = model.encode(source_ids)
        cache = model.start_cache(memory, memory_mask, max_length, beam_width=decode.beam_width)
        found = beam_search(model.step, model.reorder, cache, Constraints(limits), settings, max_length)
        return found._replace(scores=tf.maximum(found.scores, tf.float32.min))


def _encode(tokenizer, text, max_length):
    """(B,) -> ids (B, S), S at most max_length"""
    return _cut(tokenizer.encode_tensor(text).to_tensor(PAD_ID), max_length)


def _cut(ids, max_length):
    """At most `max_length` ids a row; a row that loses some ends with eos. (B, S) -> (B, S)"""
    too_long = tf.reduce_any(ids[:, max_length:] != PAD_ID, axis=1, keepdims=True)  # (B, 1)
    ids = ids[:, :max_length]
    is_last = tf.range(tf.shape(ids)[1]) == max_length - 1  # (S,)
    return tf.where(too_long & is_last, EOS_ID, ids)


def _not_empty(ids):
    """A row of padding alone becomes an empty sentence, so that there is something to attend to. (B, S) -> (B, S)"""
    ids = tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]], constant_values=PAD_ID)
    is_empty = tf.reduce_all(ids == PAD_ID, axis=1, keepdims=True)  # (B, 1)
    return tf.where(is_empty & (tf.range(tf.shape(ids)[1]) == 0), EOS_ID, ids)
