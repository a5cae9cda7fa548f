"""The translator as a `tf.Module`: what a server runs.

    serving_default         text                     -> translation, score
    translate_nbest         text                     -> translations (B, W), scores (B, W), best first, no two equal
    translate_prefix        text, prefix             -> translation, score; the translation begins with the prefix
    translate_prefix_nbest  text, prefix             -> translations (B, W), scores (B, W), all of which do
    sample                  text, temperature, seed  -> translation, score; drawn at random, the same for the same seed
    score                   source, target           -> log_prob, score, num_tokens, token_log_probs (B, T)
    align                   source, target           -> source_pieces (B, S), target_pieces (B, T), weights (B, H, T, S)
                                                      (not of an ensemble, which has no attention of its own)
    translate_ids           ids (B, S)               -> ids (B, T), lengths, score
    translate_xla           text                     -> translation, score; only where it is asked for

Everything without a shape is (B,). A request is answered together with those of strangers, so no request may cause an
error: text becomes valid UTF-8, too long input is cut, ids that do not exist become <unk>. Text that is blank, or that
gives no piece, has the translation "" with score 0. Only `translate_xla` is compiled with XLA, which TF Serving
switches off.
"""

from functools import partial

import tensorflow as tf

from keras_transformer import inference
from keras_transformer.config import MAX_INTEGER
from keras_transformer.decoding import length_penalty
from keras_transformer.ensemble import Ensemble
from keras_transformer.tokenizer import EOS_ID, PAD_ID, UNK_ID
from keras_transformer.translator import Translator

BLANK = r"[\t-\r\x1c-\x20\x{85}\pZ]*"  # the characters of Python's str.isspace
BROKEN_END = r"\x{FFFD}{1,3}\z"  # what cutting a character of four bytes leaves, once it has been replaced
MAX_INPUT_BYTES = 4096  # of a text
XLA_LENGTHS = 32  # translate_xla is compiled for inputs of a multiple of so many pieces


class ServingTranslator(tf.Module):
    """A `Translator` with everything in the graph.

    Args:
        translator: the `Translator`; it must outlive this module, which uses its weights.
        max_input_bytes: of a text; what is longer is cut. `DecodeConfig` has the limits in pieces.
        xla: whether there is a signature that XLA compiles.
    """

    def __init__(self, translator: Translator, *, max_input_bytes: int = MAX_INPUT_BYTES, xla: bool = False):
        super().__init__()
        if not 1 <= max_input_bytes <= MAX_INTEGER:
            raise ValueError(
                f"`max_input_bytes` must be at least 1 and at most {MAX_INTEGER}. "
                f"Received: max_input_bytes={max_input_bytes}."
            )
        # TensorFlow does not track a Translator. Tracking its Keras model would save every weight twice.
        self._translator = translator
        self.max_input_bytes, self._xla = max_input_bytes, xla
        self.weights = [variable.value for variable in translator.model.weights]
        tokenizers = translator.tokenizers
        self.source_tokenizer = tokenizers.source.graph_tokenizer()
        self.target_tokenizer = self.source_tokenizer if tokenizers.shared else tokenizers.target.graph_tokenizer()

    def signatures(self):
        """{name: tf.function} of what is served. Dimension 0 of every tensor is the batch."""
        text, source, target, prefix = (
            tf.TensorSpec([None], tf.string, name) for name in ("text", "source", "target", "prefix")
        )
        temperature, seed = tf.TensorSpec([None], tf.float32, "temperature"), tf.TensorSpec([None], tf.int64, "seed")
        served = {
            "serving_default": (self.translate, [text]),
            "translate_nbest": (self.translate_nbest, [text]),
            "translate_prefix": (self.translate_prefix, [text, prefix]),
            "translate_prefix_nbest": (self.translate_prefix_nbest, [text, prefix]),
            "sample": (self.sample, [text, temperature, seed]),
            "score": (self.score, [source, target]),
            "translate_ids": (self.translate_ids, [tf.TensorSpec([None, None], tf.int32, "ids")]),
        }
        if not isinstance(self._translator.model, Ensemble):
            served["align"] = (self.align, [source, target])
        if self._xla:
            served["translate_xla"] = (self.translate_xla, [text])
        return {
            name: tf.function(method, input_signature=specs, autograph=False)
            for name, (method, specs) in served.items()
        }

    def limits(self):
        """The limits that hold, in tokens and bytes, end of sentence included."""
        model, decode = self._translator.model, self._translator.decode
        return {
            "max_input_bytes": self.max_input_bytes,
            "max_input_tokens": inference.longest_input(model, decode),
            "max_output_tokens": inference.longest_output(model, decode),
            "extra_length": decode.extra_length,  # of the output, sentence by sentence
            "num_hypotheses": decode.beam_width,  # of the two n-best lists
        }

    # --- what is served

    def translate(self, text):
        return self._best(self._search(self._source_ids(text)))

    def translate_nbest(self, text):
        return self._all(self._search(self._source_ids(text), num_hypotheses=self._translator.decode.beam_width))

    def translate_prefix(self, text, prefix):
        return self._best(self._search(self._source_ids(text), prefix_ids=self._prefix_ids(prefix)))

    def translate_prefix_nbest(self, text, prefix):
        options = {"prefix_ids": self._prefix_ids(prefix), "num_hypotheses": self._translator.decode.beam_width}
        return self._all(self._search(self._source_ids(text), **options))

    def sample(self, text, temperature, seed):
        translator = self._translator
        options = {"seeds": seed, "temperature": temperature, "num_ids": translator.num_ids, "loop": "graph"}
        return self._best(inference.sample(translator.model, self._source_ids(text), translator.decode, **options))

    def score(self, source, target):
        source_ids, labels = self._pair_ids(source, target)
        translator = self._translator
        log_probs = inference.token_log_probs(
            translator.model, source_ids, labels, num_ids=translator.num_ids
        )  # (B, T)
        num_tokens = tf.math.count_nonzero(labels, axis=1, dtype=tf.int32)
        total = tf.reduce_sum(log_probs, axis=1)
        return {
            "log_prob": total,
            "score": total / length_penalty(num_tokens, translator.decode.alpha),
            "num_tokens": num_tokens,
            "token_log_probs": log_probs,
        }

    def align(self, source, target):
        """The attention to the source in the last layer but one, head by head; pieces after the end are ""."""
        source_ids, labels = self._pair_ids(source, target)
        cross = inference.alignments(self._translator.model, source_ids, labels).cross  # (layers, B, H, T, S)
        real = (labels != PAD_ID)[:, None, :, None] & (source_ids != PAD_ID)[:, None, None, :]  # (B, 1, T, S)
        return {
            "source_pieces": self.source_tokenizer.pieces_tensor(source_ids),
            "target_pieces": self.target_tokenizer.pieces_tensor(labels),
            "weights": tf.where(real, cross[max(0, cross.shape[0] - 2)], 0.0),
        }

    def translate_ids(self, ids):
        """Translates ids. Each row is read up to its end of sentence, so whatever a batch is padded with does no harm.

        A row without an end of sentence is read to its end, or up to the padding there.
        """
        ids = tf.where((ids >= 0) & (ids < self._translator.model.source_vocab_size), ids, UNK_ID)
        is_end = tf.cast(ids == EOS_ID, tf.int32)
        ids = tf.where(tf.cumsum(is_end, axis=1, exclusive=True) == 0, ids, PAD_ID)
        found = self._search(self._cut(_ended(ids)))
        lengths = found.lengths[:, 0]
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))  # there may be no row
        return {"ids": found.ids[:, 0, :longest], "lengths": lengths, "score": _finite(found.scores[:, 0])}

    def translate_xla(self, text):
        """`translate`, compiled. Text stays outside of what is compiled, and inputs have a few fixed lengths."""
        source_ids = self._source_ids(text)
        source_ids = tf.pad(source_ids, [[0, 0], [0, -tf.shape(source_ids)[1] % XLA_LENGTHS]], constant_values=PAD_ID)
        source_ids = self._cut(source_ids)  # learned positions end at the longest input
        # Not "xla": that brings an operation of XLA's own, and a server that does not know it refuses all signatures.
        compiled = tf.function(partial(self._search, loop="any"), jit_compile=True, autograph=False)
        return self._best(compiled(source_ids))

    # --- ids to ids to text

    def _search(self, source_ids, *, loop="graph", **options):
        translator = self._translator
        options |= {"num_ids": translator.num_ids, "loop": loop}
        return inference.search(translator.model, source_ids, translator.decode, **options)

    def _best(self, found):
        return {
            "translation": self.target_tokenizer.decode_tensor(found.ids[:, 0]),
            "score": _finite(found.scores[:, 0]),
        }

    def _all(self, found):
        translations = self.target_tokenizer.decode_tensor(tf.reshape(found.ids, (-1, tf.shape(found.ids)[2])))
        translations = tf.reshape(translations, (-1, found.ids.shape[1]))  # (B, W)
        translations, scores = _distinct(translations, _finite(found.scores))
        return {"translations": translations, "scores": scores}

    # --- text to ids

    def _clean(self, text):
        """The text as valid UTF-8; at most `max_input_bytes` bytes of it are read. (B,) -> (B,)"""
        too_long = tf.strings.length(text) > self.max_input_bytes
        text = tf.strings.substr(text, 0, self.max_input_bytes)
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
        return tf.where(too_long, tf.strings.regex_replace(text, BROKEN_END, ""), text)

    def _source_ids(self, text):
        """(B,) -> (B, S); a text that is blank, or that gives no piece, has no ids at all"""
        text = self._clean(text)
        ids = self._encode(self.source_tokenizer, text)
        is_blank = tf.strings.regex_full_match(text, BLANK) | tf.reduce_all((ids == PAD_ID) | (ids == EOS_ID), axis=1)
        return tf.where(is_blank[:, None], PAD_ID, ids)

    def _prefix_ids(self, prefix):
        """(B,) -> (B, P), without the end of sentence"""
        ids = self._encode(self.target_tokenizer, self._clean(prefix))
        return tf.where(ids == EOS_ID, PAD_ID, ids)

    def _pair_ids(self, source, target):
        """The ids of pairs to be scored; here a blank text is an empty sentence. -> (B, S), (B, T)"""
        together = tf.debugging.assert_equal(tf.size(source), tf.size(target), "Every source needs its target.")
        with tf.control_dependencies([together]):
            source_ids = self._encode(self.source_tokenizer, self._clean(source))
        labels = self._encode(self.target_tokenizer, self._clean(target), inference.longest_output)
        return inference.not_empty(source_ids), inference.not_empty(labels)

    def _encode(self, tokenizer, text, longest=inference.longest_input):
        """(B,) -> (B, S)"""
        return self._cut(tokenizer.encode_tensor(text).to_tensor(PAD_ID), longest)

    def _cut(self, ids, longest=inference.longest_input):
        """At most as many pieces a row as `longest` says; a row that loses some ends with eos. (B, S) -> (B, S)"""
        limit = longest(self._translator.model, self._translator.decode)
        too_long = tf.reduce_any(ids[:, limit:] != PAD_ID, axis=1, keepdims=True)  # (B, 1)
        ids = ids[:, :limit]
        is_last = tf.range(tf.shape(ids)[1]) == limit - 1  # (S,)
        return tf.where(too_long & is_last, EOS_ID, ids)


def _ended(ids):
    """Gives every row an end of sentence, except rows of nothing but padding. (B, S) -> (B, S + 1)"""
    ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=PAD_ID)
    places = tf.range(tf.shape(ids)[1])
    end = tf.reduce_max(tf.where(ids == PAD_ID, 0, places + 1), axis=1, keepdims=True)  # (B, 1), behind the last id
    is_open = (end > 0) & ~tf.reduce_any(ids == EOS_ID, axis=1, keepdims=True)
    return tf.where(is_open & (places == end), EOS_ID, ids)


def _distinct(texts, scores):
    """Empties the places of repeated texts and moves them behind all others. (B, W), (B, W)"""
    places = tf.range(tf.shape(texts)[1])
    is_before = places[None, :] < places[:, None]  # (W, W)
    is_repeated = tf.reduce_any((texts[:, :, None] == texts[:, None, :]) & is_before, axis=2)  # (B, W)
    order = tf.argsort(tf.cast(is_repeated, tf.int32), axis=1, stable=True)
    texts, scores = tf.where(is_repeated, "", texts), tf.where(is_repeated, tf.float32.min, scores)
    return tf.gather(texts, order, batch_dims=1), tf.gather(scores, order, batch_dims=1)


def _finite(scores):
    """Gives places without a hypothesis the lowest number instead of minus infinity, which JSON does not have."""
    return tf.maximum(scores, tf.float32.min)
