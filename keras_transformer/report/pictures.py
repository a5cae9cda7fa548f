"""The pictures of a report: BLEU by length, and who attends to whom in a few sentences."""

import io

from keras_transformer import plots
from keras_transformer.report.page import html

NUM_SENTENCES = 3  # whose attention is shown
MAX_WORDS = 30  # of them; the pieces of a longer sentence cannot be read


def illustrated(evaluation, align=None, say=print) -> str:
    """The page with its pictures; without matplotlib it has none, and that is said. (Arguments: see `pictures`.)"""
    try:
        found = pictures(evaluation, align)
    except ImportError as error:
        say(f"No pictures in the report: {error}")
        found = {}
    return html(evaluation, found)


def pictures(evaluation, align=None) -> dict[str, bytes]:
    """{caption: PNG}, as `html` takes it.

    Args:
        evaluation: an `Evaluation`.
        align: (sources, hypotheses) -> an `Alignment` each, as `Translator.align` gives them; None where the model that
            made the hypotheses is not at hand.
    """
    found = {"BLEU by the length of the source, with 95 % intervals": _png(plots.by_length, evaluation.by_length)}
    for kind, example in _to_look_at(evaluation) if align else ():
        (alignment,) = align([example.source], [example.hypothesis])
        caption = f"Attention in line {example.line}, {kind}: {example.source} → {example.hypothesis}"
        pieces = alignment.source_pieces, alignment.target_pieces
        found[caption] = _png(plots.attention_of_sentence, alignment.maps, *pieces, layer=None)
    return found


def _to_look_at(evaluation):
    """(why, example) of a good, a bad and a suspicious sentence, and of a second good one where none is suspicious."""
    kinds = {
        "one of the best": evaluation.best,
        "one of the worst": evaluation.worst,
        "suspicious": evaluation.suspicious,
    }
    found = {}
    for kind in (*kinds, "one of the best"):
        readable = (example for example in kinds[kind] if example.line not in found and _is_readable(example))
        if (example := next(readable, None)) is not None:
            found[example.line] = kind, example
    return list(found.values())[:NUM_SENTENCES]


def _is_readable(example):
    return all(0 < len(text.split()) <= MAX_WORDS for text in (example.source, example.hypothesis))


def _png(draw, *arguments, **options):
    file = io.BytesIO()
    draw(*arguments, file, **options)
    return file.getvalue()
