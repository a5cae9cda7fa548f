"""How good translations are: scores with signatures and intervals, tests against another output, a whole evaluation.

    sources, hypotheses, references         lists of strings; line i of each belongs together
        |
        +-- bleu                            one number
        +-- score                           BLEU, chrF and TER with their 95 % intervals
        +-- by_length                       BLEU of short and of long sentences
        +-- compare                         is this output better than another one, or is it chance?
        +-- evaluate -> Evaluation          all of that and sentences to look at; `report` makes pages of it
        `-- evaluate_translator             the same of a `Translator`, which translates first; with its speed

sacreBLEU counts, so every figure has its signature; `bootstrap.py` makes the intervals.
"""

import dataclasses
import json
import math
import platform
import time
from datetime import date

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER

from keras_transformer.bootstrap import Counts, count, middle
from keras_transformer.processor import CORES, PROCESSOR
from keras_transformer.suspicion import suspicion

TOKENIZE = BLEU.TOKENIZER_DEFAULT  # 13a
NUM_BOOTSTRAP, SEED = 1000, 12345  # resamples, and their seed: as sacreBLEU has them
EDGES = (5, 10, 15, 20, 30, 50)  # longest sources of the classes of `by_length`, in words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """One metric over one set of sentences."""

    name: str
    value: float
    interval: tuple[float, float] | None  # 95 %, from the bootstrap; None without one
    signature: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """All metrics over one set of sentences. TER counts edits: lower is better."""

    bleu: Score
    chrf: Score
    ter: Score
    exact_match: float  # share of the hypotheses that are their reference
    length_ratio: float  # tokens of the hypotheses / of the references, as BLEU counts them
    num_sentences: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthClass:
    """The sentences whose sources have a length between two edges."""

    label: str  # "6 to 10"
    num_sentences: int
    bleu: float
    interval: tuple[float, float] | None
    length_ratio: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One metric over two outputs for the same sentences."""

    name: str
    value: float
    other: float
    difference: float  # value - other
    interval: tuple[float, float]  # 95 %, of the difference
    p_value: float  # of a difference as large as this one, were the two systems equal; two-sided
    signature: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What the scores cannot know: how the hypotheses were made."""

    title: str = "Evaluation"
    hardware: str = ""
    sentences_per_second: float | None = None
    tokens_per_second: float | None = None  # target tokens
    details: dict[str, str] = dataclasses.field(default_factory=dict)  # more lines: weights, data, beam width, ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """One sentence to look at."""

    line: int  # from 1
    chrf: float
    source: str
    hypothesis: str
    reference: str
    reason: str = ""  # why it is suspicious: "empty", "copied" or "repeated"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything about one output; `report` shows it."""

    about: About
    scores: Scores
    by_length: tuple[LengthClass, ...]
    differences: tuple[Difference, ...]  # from another output; empty where there is none
    suspicious: tuple[Example, ...]
    worst: tuple[Example, ...]  # by chrF; none that is perfect
    best: tuple[Example, ...]  # by chrF; at a tie the longest

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)


def score(
    hypotheses, references, *, lowercase=False, tokenize=TOKENIZE, num_bootstrap=NUM_BOOTSTRAP, seed=SEED
) -> Scores:
    """BLEU, chrF and TER as sacreBLEU's command line gives them, with 95 % intervals.

    Args:
        hypotheses, references: lists of equally many strings.
        lowercase: fold case (TER always does).
        tokenize: what BLEU counts, by sacreBLEU's names, such as "13a", "zh", "ja-mecab" and "flores200", or "none" for
            text that is tokenised already, as published tables of tokenised BLEU have it.
        num_bootstrap: resamples for the intervals; 0 leaves them out.
        seed: of the resamples.
    """
    _check_lines(hypotheses=hypotheses, references=references)
    metrics = _metrics(lowercase, tokenize, force=tokenize == "none")
    counts = [_count(metric, hypotheses, references, lowercase) for metric in metrics]
    bleu_score, chrf, ter = (_score(each, num_bootstrap, seed) for each in counts)
    fold = _fold if lowercase else str
    num_exact = sum(
        fold(hypothesis) == fold(reference) for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return Scores(
        bleu=bleu_score,
        chrf=chrf,
        ter=ter,
        exact_match=num_exact / len(references),
        length_ratio=counts[0].length_ratio(),
        num_sentences=len(references),
    )


def check_tokenizer(tokenize=TOKENIZE):
    """Raises an error where sacreBLEU cannot use this tokenizer, before the work and not after it."""
    _metrics(False, tokenize)


def bleu(hypotheses, references, *, lowercase=False, tokenize=TOKENIZE) -> float:
    """BLEU alone: the value of `score(...).bleu`."""
    _check_lines(hypotheses=hypotheses, references=references)
    metric, _, _ = _metrics(lowercase, tokenize)
    return _count(metric, hypotheses, references, lowercase).value()


def by_length(
    sources,
    hypotheses,
    references,
    edges=EDGES,
    *,
    lowercase=False,
    tokenize=TOKENIZE,
    num_bootstrap=NUM_BOOTSTRAP,
    seed=SEED,
) -> tuple[LengthClass, ...]:
    """BLEU by the number of words of the source; classes without a sentence are left out.

    Args:
        edges: the longest source of each class but the last, rising.
        sources, ...: as in `score`.
    """
    _check_lines(sources=sources, hypotheses=hypotheses, references=references)
    metric, _, _ = _metrics(lowercase, tokenize)
    rows = _count(metric, hypotheses, references, lowercase).rows
    classes = np.searchsorted(edges, [len(source.split()) for source in sources])
    found = []
    for i, (low, high) in enumerate(zip([0, *edges], [*edges, None], strict=True)):
        part = Counts(metric, rows[classes == i])
        if len(part.rows):
            found.append(
                LengthClass(
                    label=f"over {low}" if high is None else f"{low + 1} to {high}" if low else f"up to {high}",
                    num_sentences=len(part.rows),
                    bleu=part.value(),
                    interval=part.interval(num_bootstrap, seed),
                    length_ratio=part.length_ratio(),
                )
            )
    return tuple(found)


def compare(
    hypotheses, other, references, *, lowercase=False, tokenize=TOKENIZE, num_bootstrap=NUM_BOOTSTRAP, seed=SEED
) -> tuple[Difference, ...]:
    """The paired bootstrap (Koehn, 2004): both outputs are scored on the same resamples. BLEU, chrF and TER.

    The p-value is that of Riezler and Maxwell (2005): how often the difference strays from its mean by as much as the
    difference that was seen. sacreBLEU's own takes the modulus of the differences first, which halves it for different
    systems and calls a system significantly different from itself.

    Args:
        other: the output of the other system.
        hypotheses, ...: as in `score`.
    """
    _check_lines(hypotheses=hypotheses, other=other, references=references)
    if num_bootstrap < 1:
        raise ValueError(f"`num_bootstrap` must be at least 1 to compare. Received: num_bootstrap={num_bootstrap}.")
    found = []
    for metric in _metrics(lowercase, tokenize):
        one, two = (_count(metric, output, references, lowercase) for output in (hypotheses, other))
        resampled = one.resample(num_bootstrap, seed) - two.resample(num_bootstrap, seed)
        difference = one.value() - two.value()
        as_large = int(np.sum(np.abs(resampled - resampled.mean()) >= abs(difference)))
        found.append(
            Difference(
                name=one.name(),
                value=one.value(),
                other=two.value(),
                difference=difference,
                interval=middle(resampled),
                p_value=(as_large + 1) / (num_bootstrap + 1),
                signature=one.signature(num_bootstrap, seed),
            )
        )
    return tuple(found)


def evaluate(
    sources, hypotheses, references, *, other=None, about=None, num_examples=10, edges=EDGES, lowercase=False, **options
) -> Evaluation:
    """Evaluates one output in every way that this module has.

    Args:
        sources, hypotheses, references: lists of equally many strings.
        other: the output of another system to compare with.
        about: an `About`.
        num_examples: the most that are kept of the worst and of the best sentences.
        edges: of `by_length`.
        lowercase, **options: those of `score`.
    """
    _check_lines(sources=sources, hypotheses=hypotheses, references=references, other=other)
    examples = _examples(sources, hypotheses, references, lowercase)
    options["lowercase"] = lowercase
    imperfect = [e for e in examples if e.hypothesis != e.reference and e.chrf < 100]  # chrF ignores blanks
    num_examples = min(num_examples, math.ceil(len(examples) / 2))
    return Evaluation(
        about=about or About(),
        scores=score(hypotheses, references, **options),
        by_length=by_length(sources, hypotheses, references, edges, **options),
        differences=compare(hypotheses, other, references, **options) if other is not None else (),
        suspicious=tuple(example for example in examples if example.reason),
        worst=tuple(sorted(imperfect, key=lambda e: (e.chrf, -len(e.reference)))[:num_examples]),
        best=tuple(sorted(examples, key=lambda e: (-e.chrf, -len(e.reference)))[:num_examples]),
    )


def provenance(test_set) -> dict[str, str]:
    """The lines of a report that say where it comes from."""
    return ({"test set": test_set} if test_set else {}) | {"date": date.today().isoformat()}


def evaluate_translator(translator, sources, references, *, title="Evaluation", test_set="", other=None, **options):
    """Translates the sources and evaluates the translations. -> Evaluation, translations

    Args:
        translator: a `Translator`.
        sources, references: lists of equally many strings.
        title: of the report.
        test_set: what the report calls it.
        other, **options: those of `evaluate`, but for `about`.
    """
    _check_lines(sources=sources, references=references, other=other)
    check_tokenizer(options.get("tokenize", TOKENIZE))
    began = time.monotonic()
    hypotheses = translator.translate(sources)
    seconds = time.monotonic() - began
    num_tokens = sum(map(len, translator.tokenizers.target.encode(hypotheses)))
    about = About(
        title=title,
        hardware=_hardware(),
        sentences_per_second=len(sources) / seconds,
        tokens_per_second=num_tokens / seconds,
        details={
            **provenance(test_set),
            "model": f"{translator.model.count_params():,} parameters",
            "search": f"beam {translator.decode.beam_width}, alpha {translator.decode.alpha}",
            "timing": "building the graph is included in the speed",
        },
    )
    return evaluate(sources, hypotheses, references, other=other, about=about, **options), hypotheses


def _hardware():
    import tensorflow as tf  # which the translator has loaded

    gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    names = [f"{PROCESSOR}, {CORES} cores", *(gpu.get("device_name", "GPU") for gpu in gpus)]
    return ", ".join([*names, platform.system()])


def _examples(sources, hypotheses, references, lowercase):
    _, metric, _ = _metrics(lowercase, TOKENIZE)
    chrf = _count(metric, hypotheses, references, lowercase).sentence_values()
    fold = _fold if lowercase else str
    return [
        Example(line=i, chrf=value, source=s, hypothesis=h, reference=r, reason=suspicion(*map(fold, (s, h, r))))
        for i, (value, s, h, r) in enumerate(zip(chrf, sources, hypotheses, references, strict=True), start=1)
    ]


def _count(metric, hypotheses, references, lowercase):
    sides = ([*map(_fold, side)] if lowercase else side for side in (hypotheses, references))
    return count(metric, *sides)


def _fold(text):
    """The text in lower case. The final sigma is written as any other, because a tokenizer that folds case does so."""
    return text.lower().replace("\N{GREEK SMALL LETTER FINAL SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")


def _score(counts, num_bootstrap, seed):
    return Score(
        name=counts.name(),
        value=counts.value(),
        interval=counts.interval(num_bootstrap, seed),
        signature=counts.signature(num_bootstrap, seed),
    )


def _metrics(lowercase, tokenize, force=True):
    """BLEU, chrF, TER. Without `force` BLEU logs a warning about references that look tokenised."""
    try:
        metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=force)
    except (RuntimeError, OSError) as error:  # it lacks a package, or cannot load its file
        why = " ".join(str(error).split())
        raise ValueError(f"sacreBLEU's tokenizer {tokenize!r} cannot be used here: {why}") from error
    return metric, CHRF(lowercase=lowercase), TER()


def _check_lines(**outputs):
    for name, lines in outputs.items():
        if isinstance(lines, str | bytes):  # which would be scored letter by letter
            raise TypeError(f"`{name}` must be a list of strings, a sentence each. Received: {lines!r:.80}")
    counts = {name: len(lines) for name, lines in outputs.items() if lines is not None}
    if len(set(counts.values())) > 1:
        received = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise ValueError(f"All must have the same number of lines. Received: {received}.")
    if not any(counts.values()):
        raise ValueError(f"There must be at least one sentence to score. Received: no {' and no '.join(counts)}.")
