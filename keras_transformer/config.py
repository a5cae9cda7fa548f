"""The configuration: five frozen dataclasses. A field's comment is its documentation, its default the only default.

    Config
    |- model   ModelConfig    the network; the defaults are the paper's base model (Table 3)
    |- data    DataConfig     which text, how it is cleaned and cut into pieces
    |- train   TrainConfig    the optimisation and everything around it
    `- decode  DecodeConfig   the search

Every object checks itself when it is made, before TensorFlow builds anything. `from_dict` and `to_dict` go to and from
plain JSON / TOML values; an unknown key fails with the nearest known one.
"""

import dataclasses
import difflib
import math
import numbers
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Self

# Sections, and their fields that hold paths.
PATHS = {"data": ("train", "valid", "test", "tokenizer_model"), "train": ("start_from",)}
MAX_INTEGER = 2**31 - 1  # of all settings but seeds: tensors of int32 hold no more


class ConfigError(ValueError):
    """A configuration that cannot be right: says what was expected, then what came."""

    exit_code = 2  # of a command that it ends


def did_you_mean(name: str, known) -> str:
    """The end of an error about an unknown name: the nearest known one, and all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean `{close[0]}`?" if close else ""
    return f"{hint} Known: {', '.join(sorted(known))}."


def plain_number(value):
    """A number of NumPy as one of Python; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _canonical(value, kind):
    """The frozen form of a JSON or TOML value: lists become tuples, and by `kind` 1 becomes 1.0, None "none"."""
    value = plain_number(value)
    if isinstance(value, list | tuple):
        return tuple(_canonical(item, None) for item in value)
    if value is None and "none" in typing.get_args(kind):
        return "none"
    wants_float = kind is float or float in typing.get_args(kind)
    return float(value) if wants_float and type(value) is int and abs(value) < 1e308 else value


def _matches(value, kind) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return value in arguments
    if origin in (typing.Union, types.UnionType):
        return any(_matches(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_matches(item, arguments[0]) for item in value)
    return type(value) is kind  # so that True is not an int


def _describe(kind) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(argument) for argument in arguments)
    if origin is tuple:
        return f"a list of ({_describe(arguments[0])})"
    if issubclass(kind, _Section):
        return "a table"
    return {int: "an integer", float: "a number", str: "a string", bool: "true or false", type(None): "none"}[kind]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Section:
    """Type checks, range checks and conversion, shared by all sections."""

    def __post_init__(self):
        for name, kind in typing.get_type_hints(type(self)).items():
            value = _canonical(getattr(self, name), kind)
            object.__setattr__(self, name, value)
            if not _matches(value, kind):
                raise ConfigError(
                    f"`{name}` must be {_describe(kind)}. Received: {name}={value!r} ({type(value).__name__})."
                )
            if type(value) is int and name != "seed":
                self.require(value <= MAX_INTEGER, name, f"at most {MAX_INTEGER}")
        self.check()

    def check(self):
        """Raises ConfigError where a value is of the right type but impossible."""

    def require(self, condition, name, expected):
        if not condition:
            raise ConfigError(f"`{name}` must be {expected}. Received: {name}={getattr(self, name)!r}.")

    def require_at_least(self, minimum, *names):
        for name in names:
            value = getattr(self, name)
            self.require(value is None or value >= minimum, name, f"at least {minimum}")

    def require_probability(self, *names):
        for name in names:
            self.require(0.0 <= getattr(self, name) < 1.0, name, "at least 0 and less than 1")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls().replace(**values)

    def replace(self, /, **values) -> Self:
        """A copy with other values; a mapping given for a section changes only the keys that it names."""
        known = {field.name for field in dataclasses.fields(self)}
        for name, value in values.items():
            if name not in known:
                raise ConfigError(f"Unknown key `{name}` in {type(self).__name__}.{did_you_mean(name, known)}")
            section = getattr(self, name)
            if isinstance(section, _Section) and isinstance(value, Mapping):
                try:
                    values = {**values, name: section.replace(**value)}
                except ConfigError as error:
                    raise ConfigError(f"[{name}] {error}") from None
        return dataclasses.replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(_Section):
    """The network: the hyper-parameters of Table 3. Every default is the paper's base model."""

    num_encoder_layers: int = 6  # N, Table 3
    num_decoder_layers: int = 6  # N, Table 3
    d_model: int = 512  # width of every sub-layer's output
    d_ff: int = 2048  # inner width of the feed-forward network
    num_heads: int = 8  # h
    d_k: int | None = None  # width of a head's queries and keys; None: d_model / num_heads
    d_v: int | None = None  # width of a head's values; None: d_model / num_heads
    dropout: float = 0.1  # P_drop: on sub-layer outputs and on the sums of embeddings and positions, Section 5.4
    attention_dropout: float = 0.0  # on the attention weights (Section 6.3 uses it for parsing)
    feed_forward_dropout: float = 0.0  # between the two transformations of the feed-forward network
    norm: Literal["post", "pre"] = "post"  # post: LayerNorm(x + Sublayer(x)), Section 3.1
    norm_epsilon: float = 1e-6  # the paper is silent; its reference implementation has 1e-6
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # learned: row (E) of Table 3
    max_positions: int = 512  # rows of the learned table; sinusoids have no limit
    # all: source, target and softmax share one matrix, Section 3.4; target: target and softmax; none: three matrices
    tied_embeddings: Literal["all", "target", "none"] = "all"
    scoring: Literal["scaled_dot_product", "dot_product", "additive"] = "scaled_dot_product"  # Section 3.2.1
    neighbourhood: int | None = None  # r of Table 1: self-attention sees only the r positions centred on its own

    def check(self):
        self.require_at_least(1, "num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads")
        self.require_at_least(1, "d_k", "d_v", "max_positions", "neighbourhood")
        self.require_probability("dropout", "attention_dropout", "feed_forward_dropout")
        self.require(0 < self.norm_epsilon < math.inf, "norm_epsilon", "positive and finite")
        if self.d_model % self.num_heads and None in (self.d_k, self.d_v):
            raise ConfigError(
                "`d_model` must be divisible by `num_heads` unless both `d_k` and `d_v` are given. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}."
            )
        if self.positions == "sinusoidal":
            self.require(self.d_model % 2 == 0, "d_model", "even for sinusoidal positions")

    @property
    def key_width(self) -> int:
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_width(self) -> int:
        return self.d_v or self.d_model // self.num_heads


SPECIAL_PIECES = "<pad>", "<unk>", "<s>", "</s>"  # by their ids
SYMBOLS = 'different strings without blanks or "▁", none of them a special piece or a byte'
BleuTokenizer = Literal["13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "none"]
# Pairs of text: "demo", "tfds:NAME/SOURCE-TARGET", one .tsv file, or [source file(s), target file(s)].
TextSource = str | tuple[str | tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(_Section):
    """Which text is read, and how it is cleaned, cut into pieces and batched."""

    train: TextSource | None = "demo"  # None: it is not known; nothing can be trained
    valid: TextSource | None = None  # None: the built-in split of demo and TFDS; for files, `valid_pairs` of train
    test: TextSource | None = None  # None: the built-in split of demo and TFDS; nothing for files
    reverse: bool = False  # translate from the second side to the first
    max_pairs: int | None = None  # read at most this many pairs of train, from its beginning
    valid_pairs: int = 1000  # pairs held out of train where no valid set is given, at most one in twenty
    tokenizer: Literal["bpe", "unigram"] = "bpe"  # the SentencePiece model
    vocab_size: int = 37_000  # the most pieces, few lines give fewer; Section 5.1: shared, about 37,000
    shared_vocab: bool = True  # one vocabulary for both languages
    character_coverage: float = 1.0  # share of running text whose characters get a piece; less for a very noisy corpus
    tokenizer_pairs: int = 1_000_000  # the tokenizer is trained on at most this many pairs, drawn evenly from train
    byte_fallback: bool = False  # unknown characters become bytes instead of <unk>
    symbols: tuple[str, ...] = ()  # strings that are one piece each, wherever they stand: tags such as <2de>
    # SentencePiece models to take instead of training any: a file, or [source, target] for two vocabularies. Those of
    # other systems are taken too; the options of a tokenizer's training have no effect then.
    tokenizer_model: str | tuple[str, ...] | None = None
    lowercase: bool = False  # case does not count: for the tokenizer, among duplicates and held-out pairs, in scores
    # sacreBLEU's; none: text is tokenised already. ja-mecab and ko-mecab need packages, flores... load a file once.
    bleu_tokenizer: BleuTokenizer = "13a"
    # Training batches are cut at random; 0: off. bpe: the probability of leaving out a merge, 0.1 in the literature;
    # unigram: alpha, a smaller one is more random.
    subword_sampling: float = 0.0
    buckets: int = 8  # the most shapes that the batches may have; each is compiled once
    max_length: int = 256  # pieces a side, end of sentence included; longer training pairs are left out
    max_length_ratio: float | None = None  # longest allowed ratio of the two lengths in characters
    drop_duplicates: bool = False  # keep the first of equal pairs
    drop_identical: bool = False  # leave out pairs whose two sides are the same

    def check(self):
        self.require_at_least(1, "max_pairs", "valid_pairs", "buckets", "tokenizer_pairs")
        self.require_at_least(2, "max_length")
        self.require_at_least(8, "vocab_size")
        self.require_at_least(1.0, "max_length_ratio")
        self.require(0 <= self.subword_sampling <= 1, "subword_sampling", "at least 0 and at most 1")
        # SentencePiece takes no other value.
        self.require(0.98 <= self.character_coverage <= 1, "character_coverage", "at least 0.98 and at most 1")
        self.require(are_symbols(self.symbols), "symbols", SYMBOLS)
        if self.tokenizer_model is not None:
            fits = len(self.tokenizer_files) == (1 if self.shared_vocab else 2) and all(self.tokenizer_files)
            self.require(fits, "tokenizer_model", "one file with data.shared_vocab, [source, target] without it")
            self.require(not self.symbols, "symbols", "in the model already where data.tokenizer_model gives one")
        for name in ("train", "valid", "test"):
            corpus = getattr(self, name)
            self.require(corpus != "", name, "text: two files, a .tsv file, tfds:... or demo")
            if isinstance(corpus, tuple):
                self.require(len(corpus) == 2 and all(corpus), name, "a pair: [source file(s), target file(s)]")

    @property
    def tokenizer_files(self) -> tuple[str, ...]:
        """The files of `tokenizer_model`."""
        given = self.tokenizer_model or ()
        return (given,) if isinstance(given, str) else given

    def folded(self, text: str) -> str:
        """The text as it is compared with other text."""
        return text.casefold() if self.lowercase else text

    @property
    def score_options(self) -> dict[str, Any]:
        """How translations are scored: options of `evaluation.score`."""
        return {"lowercase": self.lowercase, "tokenize": self.bleu_tokenizer}


def are_symbols(symbols: tuple[str, ...]) -> bool:
    """Whether these can be symbols of a tokenizer, see `SYMBOLS`."""
    texts = [symbol for symbol in symbols if isinstance(symbol, str) and symbol not in SPECIAL_PIECES]
    found = {symbol for symbol in texts if re.fullmatch(r"(?!<0x[0-9A-F]{2}>$)[^\s\0▁\ud800-\udfff]+", symbol)}
    return len(found) == len(symbols)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(_Section):
    """The optimisation, and everything around it: precision, devices, checkpoints, validation."""

    start_from: str | None = None  # folder of a finished run whose weights and tokenizers this one begins with
    steps: int = 100_000  # optimizer updates; Section 5.2: base 100,000, big 300,000
    # The most positions a side in one update, over all replicas and micro-batches together, padding included. Section
    # 5.1 has about 25,000 tokens a side; a run says at its start how many of the positions are tokens.
    tokens_per_batch: int = 25_000
    accumulation: int = 1  # micro-batches per update
    optimizer: Literal["adam", "muon"] = "adam"  # Section 5.3; muon: kernels move by orthogonal steps, the rest by Adam
    warmup_steps: int = 4000  # Section 5.3
    learning_rate_scale: float = 1.0  # factor on the paper's schedule
    cooldown_steps: int = 0  # the learning rate falls to 0 over this many last updates; 0: the paper's schedule
    label_smoothing: float = 0.1  # epsilon_ls, Section 5.4
    clip_norm: float | None = None  # largest global norm of the gradients; the paper does not clip
    # Exponential moving average beside the weights: average = d * average + (1 - d) * weights after each update, where
    # d = min(ema_decay, (1 + step) / (10 + step)).
    ema_decay: float | None = None
    precision: Literal["float32", "mixed_bfloat16"] = "float32"  # in training; the finished model computes in float32
    strategy: Literal["auto", "mirrored", "multi_worker", "one_device"] = "auto"  # auto: all GPUs, else one device
    xla: bool = True  # compile forward, loss and backward
    seed: int = 1  # of the weights, the order of the data and the dropout
    deterministic: bool = False  # on a GPU, add up in the same order every time, as a CPU does
    checkpoint_steps: int | None = None  # write a checkpoint every so many updates
    checkpoint_minutes: float | None = 10.0  # and every so many minutes; Section 6.1
    keep_checkpoints: int = 5  # how many of the newest are kept for averaging, besides the best of the validations
    average_checkpoints: int = 5  # how many of the newest the final model averages, Section 6.1: base 5, big 20
    valid_steps: int | None = None  # validation loss and BLEU every so many updates; None: ten times a run
    valid_sentences: int = 500  # at most so many sentences are translated for the validation BLEU
    # Stop after so many validations without a better BLEU or, at equal BLEU or without any, a better perplexity.
    patience: int | None = None
    log_steps: int = 20  # one line of the log every so many updates
    export: bool = True  # the finished model also becomes a SavedModel, WORKDIR/export/1

    def check(self):
        self.require_at_least(1, "steps", "tokens_per_batch", "accumulation", "warmup_steps", "checkpoint_steps")
        self.require_at_least(1, "keep_checkpoints", "average_checkpoints", "valid_steps", "patience", "log_steps")
        self.require_at_least(0, "seed", "valid_sentences", "cooldown_steps")
        self.require(self.cooldown_steps <= self.steps, "cooldown_steps", "at most `steps`")
        self.require_probability("label_smoothing")
        for name in ("learning_rate_scale", "clip_norm", "checkpoint_minutes"):
            value = getattr(self, name)
            self.require(value is None or 0 < value < math.inf, name, "positive and finite")
        self.require(self.seed < 2**32, "seed", "less than 2^32")
        self.require(self.start_from != "", "start_from", "the folder of a run")
        self.require(self.ema_decay is None or 0 < self.ema_decay < 1, "ema_decay", "between 0 and 1")
        self.require(
            self.average_checkpoints <= self.keep_checkpoints, "average_checkpoints", "at most `keep_checkpoints`"
        )

    @property
    def cooldown_start(self) -> float:
        """The step after which the learning rate falls to 0; infinite without a cooldown."""
        return self.steps - self.cooldown_steps if self.cooldown_steps else math.inf


MAX_SEARCH_LENGTH = 2**20  # the most pieces that a limit of a search may be set to
MAX_ALPHA = 6.0  # with this the length penalty of the longest search still fits a float32
MAX_BEAMS = 200  # per sentence; the cost of attention grows with their square, as each looks at the slots of all


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeConfig(_Section):
    """The search for a translation: beam search, and what sampling draws from."""

    beam_width: int = 4  # Section 6.1
    alpha: float = 0.6  # length penalty ((5 + length) / 6) ^ alpha, Section 6.1
    extra_length: int = 50  # output limit: input length, or that of a longer forced prefix, + 50, Section 6.1
    # The most pieces of a sentence that are read, end of sentence included; the rest is cut off. The default is that of
    # `data.max_length`; for a model trained on shorter text alone, a lower limit is best here too. Where positions are
    # learned, both sides have at most `model.max_positions`, whatever the limits here.
    max_input_length: int = 256
    min_length: int = 0  # the fewest pieces, end of sentence included; one whose limit is lower ends there
    no_repeat_ngram: int = 0  # no translation repeats a sequence of this many pieces, but for a forced prefix; 0: off
    # Sampling draws from the `top_k` likeliest of the pieces that may come (0: all of them), at its temperature, and of
    # these from the likeliest that together have the probability `top_p`.
    top_k: int = 0
    top_p: float = 1.0
    # Pieces that go through the model together, padding included: of sources in a search, of both sides in scoring. A
    # GPU takes more.
    tokens_per_batch: int = 2048

    def check(self):
        self.require_at_least(1, "beam_width", "extra_length", "tokens_per_batch")
        self.require_at_least(2, "max_input_length")  # a piece and the end of sentence
        self.require_at_least(0, "min_length", "no_repeat_ngram", "top_k")
        self.require(self.beam_width <= MAX_BEAMS, "beam_width", f"at most {MAX_BEAMS}")
        for name in ("extra_length", "max_input_length", "min_length"):
            self.require(getattr(self, name) <= MAX_SEARCH_LENGTH, name, f"at most {MAX_SEARCH_LENGTH}")
        self.require(0 < self.top_p <= 1, "top_p", "more than 0 and at most 1")
        self.require(0 <= self.alpha <= MAX_ALPHA, "alpha", f"from 0 to {MAX_ALPHA:g}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(_Section):
    """The whole configuration of a run; `config.json` of its workdir holds `to_dict()`."""

    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    def check(self):
        if self.model.positions == "learned" and self.data.max_length > self.model.max_positions:
            raise ConfigError(
                "`data.max_length` must be at most `model.max_positions` where positions are learned. "
                f"Received: data.max_length={self.data.max_length}, model.max_positions={self.model.max_positions}."
            )
        if self.train.start_from and self.data.tokenizer_model:
            raise ConfigError(
                "`data.tokenizer_model` cannot be given with `train.start_from`, which has tokenizers. "
                f"Received: {self.data.tokenizer_model!r} and {self.train.start_from!r}."
            )
        if self.model.tied_embeddings == "all" and not self.data.shared_vocab:
            raise ConfigError(
                '`model.tied_embeddings="all"` needs one vocabulary for both languages; use "target" or "none" for '
                "two. Received: data.shared_vocab=False."
            )


def differences(old, new, prefix=""):
    """{dotted key: (old value, new value)} of two nested mappings."""
    found = {}
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found |= differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found[prefix + key] = (a, b)
    return found
