"""Strings to strings: the one place where text meets the model.

translator = Translator.load("runs/demo")
translator.translate(["The dog sees the cat."])        # -> ["Der Hund sieht die Katze."]
translator.model, translator.tokenizers                 # the Keras model, SentencePiece
translator.save("runs/saved")                           # for `load`, the commands and the export
Translator.load("runs/a", "runs/b")                     # an ensemble: both models translate as one
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_transformer import alignment, inference, model_folder
from keras_transformer.compilation import WhereItPays, padded_shape
from keras_transformer.config import MAX_BEAMS, PATHS, Config, DataConfig, DecodeConfig, plain_number
from keras_transformer.decoding import length_penalty
from keras_transformer.ensemble import Ensemble
from keras_transformer.gpu import multiply_in_float32
from keras_transformer.model import AttentionMaps, Transformer
from keras_transformer.model_products import keep_panels
from keras_transformer.texts import batches_by_length, encode, listed, one_a_text
from keras_transformer.tokenizer import Tokenizer, Tokenizers, pad

LOWEST = float(np.finfo(np.float32).min)  # the score where no translation was found
MANY_BEAMS = 8  # per sentence; with more, the sentences of a batch get fewer with the square of the beams


class Translation(NamedTuple):
    text: str
    score: float  # log_prob / length penalty
    log_prob: float  # of all pieces
    pieces: list[str]  # as the search wrote them, end of sentence included unless the limit cut it off


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
        model: a `Transformer`, or an `Ensemble`, which cannot be saved or asked for attention maps.
        tokenizers: its `Tokenizers`, or a `Tokenizer` that both sides have.
        decode: the `DecodeConfig`.
        xla: whether XLA compiles the search of `translate` and `translate_nbest`; all others run as a graph. None: only
            for the shapes for which that pays, see `compilation.py`. A compiled search keeps a copy of the decoder's
            kernels and of the vocabulary, and TensorFlow keeps the programs until the process ends: for a small model
            200 MB for the first shape of a translator and 50 MB for every other one.

    On a GPU the whole process multiplies float32 as float32 from then on; see `gpu.py`.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizers: Tokenizers | Tokenizer,
        decode: DecodeConfig | None = None,
        *,
        xla: bool | None = None,
    ):
        if isinstance(tokenizers, Tokenizer):
            tokenizers = Tokenizers(tokenizers, tokenizers)
        given = {"model": (model, Transformer, Ensemble), "tokenizers": (tokenizers, Tokenizers)}
        given |= {"decode": (decode, DecodeConfig)} if decode is not None else {}
        for name, (value, *kinds) in given.items():
            if not isinstance(value, tuple(kinds)):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise TypeError(f"`{name}` must be a {wanted}. Received: {value!r:.80}")
        model_folder.check_sizes(tokenizers, model)
        self._model, self._decode, self.tokenizers = model, decode or DecodeConfig(), tokenizers
        self._xla, self._data = xla, None
        multiply_in_float32()
        self._searches: dict[int, WhereItPays] = {}  # by the number of hypotheses
        self._panels = keep_panels(model)  # for those that XLA compiles
        self._prefix_search, self._sampling, self._scoring, self._attention = (
            tf.function(function, reduce_retracing=True, autograph=False)
            for function in (self._search_with_prefix, self._sample, self._token_log_probs, self._attention_to_source)
        )

    @classmethod
    def load(cls, workdir, *others, xla: bool | None = None, **decode) -> Self:
        """Loads the finished model of a run, or of several as an `Ensemble`.

        Args:
            workdir: of the run; its rules of the search hold for an ensemble, too.
            *others: of runs that have the same tokenizers, such as those of a recipe with other seeds.
            xla: as `Translator` has it.
            **decode: fields of the `DecodeConfig` that are to be different.
        """
        config, tokenizers, model = model_folder.load(Path(workdir))
        if others:
            model = Ensemble([model, *(_member(Path(other), tokenizers, workdir) for other in others)])
        translator = cls(model, tokenizers, config.decode.replace(**decode), xla=xla)
        translator._data = config.data
        return translator

    def save(self, folder):
        """Writes the model, the tokenizers and the rules of the search to a folder of their own.

        A model that computes in 16 bits is written in float32. `load`, `python -m export` and the commands that
        translate, score, evaluate and plot attention take the folder as they take that of a finished run; it holds
        nothing of a training. It must be new or empty, or one that this method has written, which is written over: an
        error leaves what was there, and a kill the old translator, the new one, or, in the last moment, one that `load`
        refuses and `save` writes anew.

        An ensemble is refused, since a folder holds one model: save its members, and give `load` their folders.
        """
        if isinstance(self.model, Ensemble):
            raise ValueError(
                "`save` needs a translator of one model; those of an ensemble are saved one by one. "
                f"Received: an ensemble of {len(self.model.members)} models."
            )
        folder, config = Path(folder), self._config().to_dict()
        if not (model_folder.is_free(folder) or model_folder.is_saved_translator(folder)):
            raise ValueError(f"`folder` must be new, empty or one of a saved translator. Received: {folder}.")
        sections = {name: config[name] for name in model_folder.SECTIONS}
        model_folder.write(folder, sections, self.tokenizers, model_folder.bare(self.model))

    def _config(self):
        """The configuration of the run without its text; what is known of it where there was none."""
        c, tokenizers, data = self.model.config, self.tokenizers, self._data
        if data is None:
            max_length = max(2, min(DataConfig.max_length, c.max_positions))  # no more than there are learned positions
            data = DataConfig(
                shared_vocab=tokenizers.shared, lowercase=tokenizers.source.lowercase, max_length=max_length
            )
        return Config(model=c, data=data.replace(**dict.fromkeys(PATHS["data"])), decode=self.decode)

    @property
    def model(self) -> Transformer | Ensemble:
        """The model. Its weights may change; other layers, as with LoRA, or another model need another translator,
        because this one is traced."""
        return self._model

    @property
    def decode(self) -> DecodeConfig:
        """The rules of the search; other ones need another translator."""
        return self._decode

    @property
    def num_ids(self) -> int:
        """The ids that a translation may have: those of the target's tokenizer. The model may have more."""
        return self.tokenizers.target.vocab_size

    # --- what can be asked

    def translate(self, texts: Iterable[str]) -> list[str]:
        """The best translation of every text, in order. A text without any piece, such as a blank one, gives "".

        Args:
            texts: strings, each translated as one sentence. A text of more than `decode.max_input_length` pieces is
                cut, which is logged.
        """
        return [translations[0].text for translations in self.translate_nbest(texts, num_hypotheses=1)]

    def translate_nbest(self, texts: Iterable[str], num_hypotheses: int) -> list[list[Translation]]:
        """The best translations of every text, best first, no two of them equal; fewer where there are not so many.

        `score` gives them the same scores if it is given their pieces. Given their texts it may not, because the search
        can cut words differently from the tokenizer.

        Args:
            texts: strings, as in `translate`.
            num_hypotheses: how many are wanted; the beam is at least this wide.
        """
        num_hypotheses = _num_hypotheses(num_hypotheses)
        search = self.searching(num_hypotheses)
        beams = max(self.decode.beam_width, num_hypotheses)
        return self._translations(listed(texts), lambda source_ids, rows, ahead: search(source_ids, ahead), beams)

    def translate_prefix(self, texts: Iterable[str], prefixes: Iterable[str]) -> list[Translation]:
        """The best translation of every text among those that begin with its prefix.

        The prefix is used as the tokenizer reads it: normalised, unknown characters as "⁇". It should end with a whole
        word: the translation goes on after its last piece, and may continue a cut word in an unlikely way.

        Args:
            texts: strings, as in `translate`.
            prefixes: how the translation of each begins; "" leaves it free.
        """
        return [best for best, *_ in self.translate_prefix_nbest(texts, prefixes, num_hypotheses=1)]

    def translate_prefix_nbest(
        self, texts: Iterable[str], prefixes: Iterable[str], num_hypotheses: int
    ) -> list[list[Translation]]:
        """The best translations of every text among those that begin with its prefix, as `translate_nbest` lists them.

        Args:
            texts, prefixes: strings, as in `translate_prefix`.
            num_hypotheses: how many are wanted; the beam is at least this wide.
        """
        num_hypotheses = _num_hypotheses(num_hypotheses)
        texts, prefixes = listed(texts), listed(prefixes)
        if len(prefixes) != len(texts):
            raise ValueError(f"Every text needs its prefix. Received: {len(texts)} texts, {len(prefixes)} prefixes.")
        limit = inference.longest_input(self.model, self.decode)
        encoded = self._encode(self.tokenizers.target, prefixes, limit)
        prefix_ids = [ids[:-1] for ids in encoded]  # without the end of sentence

        def ask(source_ids, rows, ahead):
            return self._prefix_search(source_ids, pad([prefix_ids[row] for row in rows]), num_hypotheses)

        return self._translations(texts, ask, max(self.decode.beam_width, num_hypotheses))

    def sample(
        self, texts: Iterable[str], seeds: int | Sequence[int], temperature: float | Sequence[float] = 1.0
    ) -> list[Translation]:
        """A random translation of every text; the same text, seed and temperature give the same one.

        Args:
            texts: what is translated.
            seeds: one for all, or one a text.
            temperature: one for all, or one a text; 0 takes the likeliest piece each time.
        """
        texts = listed(texts)
        seeds = one_a_text("seeds", _integers(seeds), texts)
        temperature = np.asarray(temperature, np.float32)
        if wrong := temperature[~(np.isfinite(temperature) & (temperature >= 0))].tolist():
            raise ValueError(f"`temperature` must be at least 0 and finite. Received: {wrong[0]}.")
        temperature = one_a_text("temperature", temperature, texts)

        def ask(source_ids, rows, ahead):
            return self._sampling(source_ids, tf.constant(seeds[rows]), tf.constant(temperature[rows]))

        return [drawn for drawn, *_ in self._translations(texts, ask)]

    def score(self, sources: Iterable[str], targets: Iterable[str | list[str]]) -> list[Scored]:
        """How likely the model finds each target as the translation of its source, in all and piece by piece.

        Args:
            sources: what was translated.
            targets: the translation of each: its text, or its pieces as `Translation` and `Scored` have them.
        """
        return self._of_pairs(self._scoring, self._scored, sources, targets)

    def word_alignments(
        self, sources: Iterable[str], targets: Iterable[str | list[str]]
    ) -> list[list[tuple[int, int]]]:
        """The words of each pair that belong together, as sorted pairs of word numbers: (source word, target word).

        They are derived from the attention of the upper layers: an approximation, see `alignment.py`. Words are those
        between blanks of the text as the tokenizer normalises it. A blank text has none; behind the end of a text that
        is cut there are no links.

        Args:
            sources: what was translated.
            targets: the translation of each, as in `score`.
        """
        return self._of_pairs(self._attention, self._links, sources, targets)

    def align(self, sources: Iterable[str], targets: Iterable[str]) -> list[Alignment]:
        """The attention weights of every layer and head for each pair. An ensemble has none; ask one of its members.

        Args:
            sources: what was translated.
            targets: the translation of each.
        """
        found = []
        for source, target in zip(*self._encode_pairs(sources, targets), strict=True):
            maps = inference.alignments(self.model, tf.constant(pad([source])), tf.constant(pad([target])))
            pieces = self.tokenizers.source.pieces(source), self.tokenizers.target.pieces(target)
            found.append(Alignment(*pieces, AttentionMaps(*(x.numpy()[:, 0] for x in maps))))
        return found

    def searching(self, num_hypotheses: int = 1) -> WhereItPays:
        """The beam search as a function, ids (B, S) -> Hypotheses, without any text."""
        num_hypotheses = _num_hypotheses(num_hypotheses)
        if num_hypotheses not in self._searches:

            def search(source_ids, compiled):
                how = {"loop": "xla", "panels": self._panels} if compiled else {"loop": "graph"}
                return self._search(source_ids, num_hypotheses=num_hypotheses, **how)

            longest = inference.longest_input(self.model, self.decode)
            self._searches[num_hypotheses] = WhereItPays(search, self._xla, longest, prepare=self._panels.refresh)
        return self._searches[num_hypotheses]

    # --- text to ids and back

    def _translations(self, texts, ask, beams=1):
        """The translations that `ask(source_ids, rows, ahead)` finds for every text, with `beams` beams.

        `rows` are the numbers of the texts whose ids these are; `ahead` is how many more batches of their shape follow.
        """
        translations = [[Translation("", 0.0, 0.0, [])] for _ in texts]
        limit = inference.longest_input(self.model, self.decode)
        encoded = self._encode(self.tokenizers.source, texts, limit)
        full = np.array([i for i, ids in enumerate(encoded) if texts[i].strip() and len(ids) > 1], np.int64)
        sources = [encoded[i] for i in full]  # the others are blank: nothing but the end of sentence
        tokens = self.decode.tokens_per_batch * MANY_BEAMS**2 // max(beams, MANY_BEAMS) ** 2
        batches = [
            (rows, pad([sources[row] for row in rows]))
            for rows in batches_by_length([len(ids) for ids in sources], tokens)
        ]
        ahead = Counter(padded_shape(*ids.shape) for _, ids in batches)
        for rows, ids in batches:
            ahead[padded_shape(*ids.shape)] -= 1
            hypotheses = ask(ids, full[rows], ahead[padded_shape(*ids.shape)])
            for row, *of_row in zip(full[rows], *map(np.asarray, hypotheses), strict=True):
                translations[row] = self._read(*of_row) or [Translation("", LOWEST, LOWEST, [])]
        return translations

    def _read(self, ids, scores, log_probs, lengths):
        """The translations of one sentence's hypotheses; fewer where fewer were found, or two have the same text."""
        tokenizer, distinct = self.tokenizers.target, {}
        hypotheses = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True) if length]
        for text, *numbers, pieces in zip(tokenizer.decode(hypotheses), scores, log_probs, hypotheses, strict=False):
            if text not in distinct:
                distinct[text] = Translation(text, *map(float, numbers), tokenizer.pieces(pieces))
        return list(distinct.values())

    def _of_pairs(self, ask, read, sources, targets):
        """`read(source_ids, target_ids, answer)` of every pair, in order; `ask` answers those of a batch together."""
        pairs = list(zip(*self._encode_pairs(sources, targets), strict=True))
        found = [None] * len(pairs)
        lengths = [2 * max(map(len, pair)) for pair in pairs]  # padding included
        for rows in batches_by_length(lengths, self.decode.tokens_per_batch):
            batch = map(pad, zip(*(pairs[row] for row in rows), strict=True))
            for row, answer in zip(rows, ask(*batch).numpy(), strict=True):
                found[row] = read(*pairs[row], answer)
        return found

    def _scored(self, source_ids, target_ids, log_probs):
        log_probs = log_probs[: len(target_ids)]
        total = float(log_probs.sum())
        score = total / float(length_penalty(len(target_ids), self.decode.alpha))
        return Scored(score, total, self.tokenizers.target.pieces(target_ids), log_probs.tolist())

    def _links(self, source_ids, target_ids, weights):
        pieces = self.tokenizers.source.pieces(source_ids), self.tokenizers.target.pieces(target_ids)
        weights = weights[: len(target_ids), : len(source_ids)]
        return alignment.links(weights, *map(alignment.word_numbers, pieces))

    def _encode_pairs(self, sources, targets):
        sources, targets = listed(sources), listed(targets, or_pieces=True)
        if len(sources) != len(targets):
            raise ValueError(f"Every source needs its target. Received: {len(sources)} and {len(targets)}.")
        longest = inference.longest_input(self.model, self.decode), inference.longest_output(self.model, self.decode)
        return [self._encode(*side) for side in zip(self.tokenizers, (sources, targets), longest, strict=True)]

    def _encode(self, tokenizer, texts, limit):
        name = "decode.max_input_length"
        if limit == self.model.position_limit:
            name = "model.max_positions"
        elif limit > self.decode.max_input_length:
            name += " + decode.extra_length"
        return encode(tokenizer, texts, limit=limit, limited_by=name)

    # --- ids to ids

    def _search(self, source_ids, **options):
        return inference.search(self.model, source_ids, self.decode, num_ids=self.num_ids, **options)

    def _search_with_prefix(self, source_ids, prefix_ids, num_hypotheses):
        return self._search(source_ids, prefix_ids=prefix_ids, num_hypotheses=num_hypotheses, loop="graph")

    def _sample(self, source_ids, seeds, temperature):
        options = {"seeds": seeds, "temperature": temperature, "num_ids": self.num_ids, "loop": "graph"}
        return inference.sample(self.model, source_ids, self.decode, **options)

    def _token_log_probs(self, source_ids, labels):
        return inference.token_log_probs(self.model, source_ids, labels, num_ids=self.num_ids)

    def _attention_to_source(self, source_ids, labels):
        return inference.attention_to_source(self.model, source_ids, labels)


def _num_hypotheses(number):
    number = plain_number(number)
    if type(number) is not int or not 1 <= number <= MAX_BEAMS:
        raise ValueError(f"`num_hypotheses` must be an integer from 1 to {MAX_BEAMS}. Received: {number!r}.")
    return number


def _member(folder, tokenizers, first):
    """The model of another run of an ensemble, for which an id must mean what it means for the first."""
    _, found, model = model_folder.load(folder)
    if found != tokenizers:
        raise ValueError(
            f"The runs of an ensemble must have equal tokenizers, those of {first}: {tuple(tokenizers)}. "
            f"Received: {folder} with {tuple(found)}."
        )
    return model


def _integers(values):
    values = np.asarray(values)
    if values.size and not np.can_cast(values.dtype, np.int64):  # NumPy takes an empty list for floats
        raise ValueError(f"`seeds` must be 64-bit integers. Received: {values!r:.80}")
    return values.astype(np.int64)
