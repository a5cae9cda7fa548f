"""Figures against steps and lengths."""

import math

import numpy as np

from keras_transformer.plots.figure import BLUE, ORANGE, SKY, logarithmic, new_axes, new_figure, save

BLOCKS = "▁▂▃▄▅▆▇█"

PANELS = (  # title, field of a record, what it is drawn against, kinds of records, spans magnitudes
    ("loss, a token", "loss", "step", ("train", "valid"), False),
    ("perplexity", "perplexity", "step", ("train", "valid"), True),
    ("BLEU", "bleu", "minutes", ("valid",), False),
    ("learning rate", "learning_rate", "step", ("train",), False),
    ("target tokens a second", "tokens_per_second", "step", ("train",), False),
    ("gradient norm", "gradient_norm", "step", ("train",), True),
)


def sparkline(values, width=40) -> str:
    """A curve in one line of text.

    >>> sparkline([9, 7, 6, 4, 3, 2, 2, 1])
    '█▆▅▄▃▂▂▁'
    """
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    levels = (means - means.min()) / (np.ptp(means) or 1.0) * (len(BLOCKS) - 1)
    return "".join(BLOCKS[round(level)] for level in levels)


def learning_curve(records, path):
    """Everything that `log.jsonl` tells about a run, against the steps; BLEU against the minutes that it took.

    Args:
        records: its lines as dicts, of kind "train" or "valid"; what none of them has gets no panel.
        path: of the picture.
    """
    records = [{**record, "minutes": record.get("seconds", math.nan) / 60} for record in records]
    panels = [(*panel, {kind: _curve(records, kind, *panel[1:3]) for kind in panel[3]}) for panel in PANELS]
    panels = [panel for panel in panels if any(len(values) for _, values in panel[-1].values())]
    if not panels:
        raise ValueError(f"A learning curve needs records with figures. Received: {len(records)} without any.")
    num_columns = min(3, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    figure = new_figure(4.2 * num_columns, 3.1 * num_rows)
    for i, (title, field, against, kinds, spans_magnitudes, curves) in enumerate(panels, start=1):
        axes = new_axes(figure, (num_rows, num_columns, i), title, against)
        for kind, curve in curves.items():
            if len(curve[1]):
                _draw(axes, kind, *curve)
        values = np.concatenate([values for _, values in curves.values()])
        if spans_magnitudes and values.min() > 0 and values.max() > 10 * values.min():
            logarithmic(axes)
        elif field != "loss":
            axes.set_ylim(bottom=0)
        if len(kinds) > 1:
            axes.legend(frameon=False)
    save(figure, path)


def schedule(rates, path):
    """The learning rates of steps 1, 2, ..."""
    figure = new_figure(7, 3.8)
    axes = new_axes(figure, (1, 1, 1), "learning rate", "step")
    axes.plot(np.arange(1, len(rates) + 1), rates, color=BLUE, linewidth=1.8)
    axes.set_ylim(bottom=0)
    save(figure, path)


def by_length(rows, path):
    """BLEU by the length of the source, with its intervals.

    Args:
        rows: what `evaluation.by_length` gives: objects with `label`, `bleu`, `num_sentences` and `interval`.
        path: of the picture.
    """
    figure = new_figure(max(3.0, 1.1 * len(rows) + 0.8), 3.6)
    axes = new_axes(figure, (1, 1, 1), "BLEU", "words of the source")
    axes.grid(visible=False, axis="x")
    axes.bar(range(len(rows)), [row.bleu for row in rows], color=SKY, width=0.7)
    tops = [max(row.bleu, *(row.interval or ())) if row.interval else row.bleu for row in rows]
    for i, (row, top) in enumerate(zip(rows, tops, strict=True)):
        if row.interval:
            axes.vlines(i, *row.interval, color="black", linewidth=1.3)
        label = f"{row.bleu:.1f}\nn = {row.num_sentences:,}"
        axes.annotate(label, (i, top), (0, 4), textcoords="offset points", ha="center", va="bottom", fontsize=8.5)
    axes.set_xticks(range(len(rows)), [row.label for row in rows])
    axes.set(xlim=(-0.7, len(rows) - 0.3), ylim=(0, 1.2 * max([*tops, 1.0])))
    save(figure, path)


def _curve(records, kind, field, against):
    """(places, values) of the records that have finite ones."""
    pairs = [(record[against], record.get(field, math.nan)) for record in records if record.get("kind") == kind]
    pairs = np.array([pair for pair in pairs if None not in pair], "float64").reshape(-1, 2)
    return pairs[np.isfinite(pairs).all(axis=1)].T


def _draw(axes, kind, places, values):
    """Validations are dots. A long curve of training is faint, with its running mean on top."""
    if kind == "valid":
        axes.plot(places, values, color=ORANGE, marker="o", markersize=4, linewidth=1.6, label="validation")
    elif len(values) < 100:
        axes.plot(places, values, color=BLUE, marker="o", markersize=2.5, linewidth=1.6, label="training")
    else:
        width = len(values) // 50
        running = np.convolve(values, np.ones(width) / width, mode="valid")
        axes.plot(places, values, color=BLUE, linewidth=0.7, alpha=0.35)
        axes.plot(places[width // 2 :][: len(running)], running, color=BLUE, linewidth=1.6, label="training")
