"""Text to pieces and back: one SentencePiece model, in Python for the corpus and in the graph for serving.

    "The cat."  --encode-->  [21, 340, 7, 3]  --pieces-->  ["▁The", "▁cat", ".", "</s>"]
                             [21, 340, 7, 3, 0, 0]  --decode-->  "The cat."

Decoding gives back the text as the model normalises it (NFKC; tabs, newlines and runs of blanks become one blank; no
accent is lost), in lower case if the model was trained so. `GraphTokenizer` is the same model as
tensorflow-text operations: its ids equal those of Python on every string.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple, Self

import numpy as np
import sentencepiece
import tensorflow as tf

from keras_transformer.adoption import adopted
from keras_transformer.config import SYMBOLS, are_symbols
from keras_transformer.files import replacing
from keras_transformer.processor import CORES
from keras_transformer.subwords import Subwords

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
MAX_SENTENCE = 2**30  # bytes of a line to learn from; SentencePiece leaves out longer ones, by itself those above 4,192
TRAINING_THREADS = 8  # a constant: unigram training adds up floats by thread, and the model must not depend on that
KINDS = "bpe", "unigram"
NORMALIZERS = {False: "nmt_nfkc", True: "nmt_nfkc_cf"}  # by `lowercase`; cf: case folding


class Tokenizer:
    """One SentencePiece model: of one language, or of both where the vocabulary is shared.

    Args:
        model_bytes: The serialised model; `train` and `load` make them.
    """

    def __init__(self, model_bytes: bytes):
        self.model_bytes = model_bytes
        try:
            if not model_bytes:  # which SentencePiece would take for no argument
                raise RuntimeError("nothing")
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
        except RuntimeError as error:
            raise ValueError(f"Expected a SentencePiece model. Received: {len(model_bytes)} other bytes.") from error
        processor = self._processor
        found = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if found != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            expected = f"{PAD_ID}, {UNK_ID}, {BOS_ID} and {EOS_ID}"
            raise ValueError(
                f"A tokenizer must have the ids {expected} for <pad>, <unk>, <s> and </s>. Received: {found}; "
                "`Tokenizer.train` makes such a model, `Tokenizer.adopt` makes one of another."
            )

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        *,
        vocab_size: int,
        kind: Literal["bpe", "unigram"] = "bpe",
        byte_fallback: bool = False,
        lowercase: bool = False,
        character_coverage: float = 1.0,
        symbols: Sequence[str] = (),
    ) -> Self:
        """Trains a model on the given sentences: the same model for the same sentences, on every machine.

        Args:
            vocab_size: The most pieces; a small corpus gives fewer.
            byte_fallback: Unknown characters become bytes instead of <unk>; 256 pieces are spent on them.
            lowercase: Fold case first; Greek's final sigma becomes any other. It is part of the model, so that it holds
                in the graph too.
            character_coverage: The share of the characters, counted in running text, that become pieces.
            symbols: Strings that are one piece each, wherever they stand, and never change: tags such as <2de>.
        """
        symbols = tuple(_no_string(symbols))
        if not are_symbols(symbols):
            raise ValueError(f"`symbols` must be {SYMBOLS}. Received: symbols={symbols!r}.")
        if kind not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}. Received: kind={kind!r}.")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=map(_without_surrogates, _no_string(sentences)),
                model_writer=model,
                model_type=kind,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                byte_fallback=byte_fallback,
                normalization_rule_name=NORMALIZERS[lowercase],
                character_coverage=character_coverage,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                num_threads=TRAINING_THREADS,
                minloglevel=2,
                max_sentence_length=MAX_SENTENCE,
                user_defined_symbols=list(symbols),
            )
        except RuntimeError as error:
            raise ValueError(_why_not(error, kind, vocab_size)) from error
        return cls(model.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def adopt(cls, path: str | Path) -> Self:
        """Loads a SentencePiece model that was trained elsewhere. It cuts text as before, into pieces with other ids:
        the special pieces are those that every tokenizer has here, and the rest follow in their order."""
        try:
            return cls(adopted(Path(path).read_bytes()))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: str | Path):
        with replacing(Path(path)) as aside:
            aside.write_bytes(self.model_bytes)

    def __eq__(self, other):
        return isinstance(other, Tokenizer) and self.model_bytes == other.model_bytes

    def __hash__(self):
        return hash(self.model_bytes)

    def __repr__(self):
        return f"<Tokenizer of {self.vocab_size} pieces, {self.model_hash[:12]}>"

    @property
    def vocab_size(self) -> int:
        return self._processor.vocab_size()

    @property
    def lowercase(self) -> bool:
        """Whether case is folded."""
        return "A" not in self._processor.Normalize("A")

    @property
    def model_hash(self) -> str:
        return hashlib.sha256(self.model_bytes).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every text, end of sentence included. All cores of the process take part."""
        texts = list(_no_string(texts))
        options = dict(add_eos=True, num_threads=min(CORES, 1 + len(texts) // 100))
        try:
            return self._processor.encode(texts, **options)
        except TypeError:
            return self._processor.encode(list(map(_without_surrogates, texts)), **options)

    def sample(self, sequences: Iterable[Sequence[int]], amount: float, seed: int) -> list[list[int]]:
        """Cuts the text of ids from `encode` differently (subword regularisation): a pure function of the arguments.

        `amount` is the probability of leaving out a merge (BPE-dropout), or the smoothing alpha of a unigram model,
        where 0.1 is a strong and 1.0 a weak effect.
        """
        random = Random(seed).random
        return [self._subwords.sample(ids, amount, random) for ids in sequences]

    @cached_property
    def _subwords(self):
        return Subwords(self.model_bytes)

    def decode(self, sequences: Iterable[Iterable[int]]) -> list[str]:
        """The text of every sequence up to its end; padding and begin of sentence are ignored, any integer is taken."""
        visible = [self._visible(ids) for ids in _sequences(sequences)]
        return self._processor.decode(visible) if visible else []  # SentencePiece would take [] for one sequence

    def _visible(self, ids) -> list[int]:
        until_end = takewhile(lambda id_: id_ != EOS_ID, map(int, ids))
        return [self._known(id_) for id_ in until_end if id_ not in (PAD_ID, BOS_ID)]

    def _known(self, id_):
        return id_ if 0 <= id_ < self.vocab_size else UNK_ID

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The written form of each id, for people: "▁" marks the start of a word. Any integer is taken."""
        return [self._processor.id_to_piece(self._known(int(id_))) for id_ in ids]

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """The id of each written form: the inverse of the method `pieces`."""
        pieces = list(pieces)
        ids = [self._processor.piece_to_id(piece) for piece in pieces]
        unknown = self._processor.id_to_piece(UNK_ID)
        if strangers := [piece for piece, id_ in zip(pieces, ids, strict=True) if id_ == UNK_ID and piece != unknown]:
            raise ValueError(f"Expected pieces of this vocabulary. Received: {strangers[0]!r}.")
        return ids

    def graph_tokenizer(self) -> "GraphTokenizer":
        """A new tokenizer of tensors. Make it after seeding: `keras.utils.set_random_seed` destroys existing ones."""
        return GraphTokenizer(self)


def _why_not(error, kind, vocab_size):
    """What SentencePiece says when it cannot train a model, in words of this project where it is a known case."""
    if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
        hint = "It holds the characters, all or a share (`character_coverage`), and 256 bytes for `byte_fallback`."
        return f"`vocab_size` must be at least {needed[1]} for this text. Received: {vocab_size}. {hint}"
    if "!sentences_.empty()" in str(error) or "all_chars_count" in str(error):
        return "Expected sentences with text to train on. Received: none."
    return f"SentencePiece cannot train a {kind} model of {vocab_size} pieces: {error}"


def _without_surrogates(text):
    """`text` with U+FFFD for lone surrogates, as in names of files that are not UTF-8: there are no bytes for them."""
    if not isinstance(text, str):
        raise TypeError(f"Expected strings in a list. Received: {text!r:.80} in it.")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _sequences(sequences):
    """A list of sequences of ids; refuses a single one."""
    sequences = list(sequences)
    if sequences and not isinstance(sequences[0], Iterator) and np.ndim(sequences[0]) == 0:
        raise TypeError(f"Expected sequences of ids in a list. Received: {sequences!r:.80}")
    return sequences


def _no_string(texts):
    if isinstance(texts, str | bytes):
        raise TypeError(f"Expected strings in a list. Received: {texts!r:.80}")
    return texts


class GraphTokenizer(tf.Module):
    """The model of a `Tokenizer` as tensorflow-text operations. A tf.Module that holds one can be exported.

    The operations run on the CPU and have no XLA kernel: call them outside every jit-compiled function.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        import tensorflow_text  # here, because it takes a second and only serving needs it

        self._vocab_size = tokenizer.vocab_size
        # Where a SavedModel is loaded, tokenizers of the same name, which is the default, would all be the first one.
        self._model = tensorflow_text.SentencepieceTokenizer(
            tokenizer.model_bytes, out_type=tf.int32, add_eos=True, name=f"sentencepiece_{tokenizer.model_hash}"
        )

    def encode_tensor(self, text) -> tf.RaggedTensor:
        """Strings (N,) -> int32 ids (N, None), end of sentence included. Bytes that are not UTF-8 count as U+FFFD."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
        return self._model.tokenize(text)

    def decode_tensor(self, ids) -> tf.Tensor:
        """Ids (N, T), each row read up to its end of sentence -> strings (N,). Any id is accepted."""
        ids = tf.cast(ids, tf.int32)
        is_end = tf.cast(tf.equal(ids, EOS_ID), tf.int32)
        visible = tf.equal(tf.cumsum(is_end, axis=1), 0) & tf.not_equal(ids, PAD_ID) & tf.not_equal(ids, BOS_ID)
        known = tf.where((ids >= 0) & (ids < self._vocab_size), ids, UNK_ID)  # (N, T)
        return self._model.detokenize(tf.ragged.boolean_mask(known, visible))

    def pieces_tensor(self, ids) -> tf.Tensor:
        """The written form of each known id, "" for padding. Ids of any shape -> strings of that shape."""
        return tf.where(ids == PAD_ID, "", self._model.id_to_string(ids))


SHARED_FILE, *SEPARATE_FILES = TOKENIZER_FILES = "tokenizer.model", "source.model", "target.model"


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides, which are the same where the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source == self.target

    def save(self, folder: str | Path):
        """Writes tokenizer.model, or source.model and target.model; files of the other kind are removed."""
        folder = Path(folder)
        written = {SHARED_FILE: self.source} if self.shared else dict(zip(SEPARATE_FILES, self, strict=True))
        for name, tokenizer in written.items():
            tokenizer.save(folder / name)
        for name in set(TOKENIZER_FILES) - set(written):
            (folder / name).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        folder = Path(folder)
        if (folder / SHARED_FILE).exists():
            tokenizer = Tokenizer.load(folder / SHARED_FILE)
            return cls(tokenizer, tokenizer)
        if not (folder / SEPARATE_FILES[0]).exists():
            raise FileNotFoundError(f"Expected {SHARED_FILE}, or {' and '.join(SEPARATE_FILES)}. None in {folder}.")
        return cls(*(Tokenizer.load(folder / name) for name in SEPARATE_FILES))


def pad(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Sequences of ids as one array, filled up with padding. -> (B, S)"""
    sequences = _sequences(sequences)
    ids = np.full((len(sequences), max([1, *map(len, sequences)])), PAD_ID, np.int32)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return ids
