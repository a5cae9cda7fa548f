"""Pictures: learning curves, attention, positions, schedules, scores by length. Plain arrays in, a PNG file out.

matplotlib is imported when the first picture is drawn, and drawn on without pyplot: no window, no global state, safe in
any thread. `sparkline` needs no matplotlib at all.

Colours are those of Okabe and Ito, which people who see few colours can tell apart; maps are one hue, light to dark.
"""

import math

import numpy as np

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
LINES = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")
DPI = 150
MAX_INCHES = 7.0  # of one attention map; the labels of longer sentences are thinned out
MAX_PIECE = 14  # letters of a label
BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values, width=40) -> str:
    """A curve in one line of text; what is not a number is a gap.

    >>> sparkline([9, 7, 6, 4, 3, 2, 2, 1])
    '█▆▅▄▃▂▂▁'
    """
    values = _floats(values)
    if not len(values):
        return ""
    values = np.array([_mean(part) for part in np.array_split(values, min(width, len(values)))])
    known = values[np.isfinite(values)]
    low, spread = (known.min(), np.ptp(known)) if len(known) else (0.0, 0.0)
    levels = (values - low) / spread if spread else np.where(np.isfinite(values), 0.5, np.nan)
    return "".join(BLOCKS[round(level * (len(BLOCKS) - 1))] if math.isfinite(level) else " " for level in levels)


def learning_curve(records, path):
    """Everything that `log.jsonl` tells about a run, against the steps.

    Args:
        records: its lines as dicts, of kind "train" or "valid"; what a record does not have is left out.
        path: the PNG file, a name or an open file; so in all functions of this module.
    """
    panels = (  # title, field, kinds, logarithmic
        ("loss, a token", "loss", ("train", "valid"), False),
        ("perplexity", "perplexity", ("train", "valid"), True),
        ("BLEU", "bleu", ("valid",), False),
        ("learning rate", "learning_rate", ("train",), False),
        ("target tokens a second", "tokens_per_second", ("train",), False),
        ("gradient norm", "gradient_norm", ("train",), True),
    )
    curves = [
        (title, {kind: _curve(records, kind, field) for kind in kinds}, log) for title, field, kinds, log in panels
    ]
    curves = [curve for curve in curves if any(len(steps) for steps, _ in curve[1].values())]
    if not curves:
        raise ValueError(f"A learning curve needs records with figures. Received: {len(records)} without any.")
    num_columns = min(3, len(curves))
    num_rows = math.ceil(len(curves) / num_columns)
    figure = _figure(4.2 * num_columns, 3.1 * num_rows)
    for i, (title, by_kind, logarithmic) in enumerate(curves):
        axes = _axes(figure, (num_rows, num_columns, i + 1), title, "step")
        for kind, (steps, values) in by_kind.items():
            _draw_curve(axes, kind, steps, values)
        if logarithmic:
            _plain_logarithm(axes)
        else:
            axes.set_ylim(bottom=0 if title != "loss, a token" else None)
        if len(by_kind) > 1:
            axes.legend(frameon=False)
    _save(figure, path)


def attention(weights, rows, columns, path, title=""):
    """One layer: a map for every head.

    Args:
        weights: (H, T, S); what is beyond the labels is padding and is cut off.
        rows, columns: the pieces that attend and those that are attended to.
        title: of the picture.
    """
    weights = _cut(weights, rows, columns)
    num_columns = min(4, len(weights))
    num_rows = math.ceil(len(weights) / num_columns)
    width, height = _inches(columns), _inches(rows)
    figure = _figure(num_columns * (width + 0.9) + 0.8, num_rows * (height + 1.1) + 0.4)
    _title(figure, title)
    every = []
    for head, head_weights in enumerate(weights):
        axes = figure.add_subplot(num_rows, num_columns, head + 1)
        _map(axes, head_weights, rows, columns, weights.max())
        axes.set_title(f"head {head + 1}", fontsize=9)
        every.append(axes)
    _colour_bar(figure, every, "attention weight")
    _save(figure, path)


def attention_of_sentence(maps, source_pieces, target_pieces, path, layer=-1, title=""):
    """One pair of sentences: who attends to whom in encoder, decoder and between them, as the mean of the heads.

    Row t of a decoder's map is the step that writes `target_pieces[t]`; its columns are what has been read by then.

    Args:
        maps: three arrays, encoder (layers, H, S, S), decoder (layers, H, T, T) and cross (layers, H, T, S), of one
            sentence: `AttentionMaps` with a batch of one will do.
        source_pieces: what the encoder reads, end of sentence included.
        target_pieces: what the decoder writes, end of sentence included.
        layer: which one is shown; None: the mean of all.
        title: of the picture.
    """
    read = ["<s>", *target_pieces[:-1]]
    parts = (
        ("encoder: source to source", source_pieces, source_pieces),
        ("decoder: written to read", target_pieces, read),
        ("cross: written to source", target_pieces, source_pieces),
    )
    means = [
        _mean_of_heads(weights, rows, columns, layer) for weights, (_, rows, columns) in zip(maps, parts, strict=True)
    ]
    source, target = _inches(source_pieces), _inches(target_pieces)
    figure = _figure(2 * source + target + 3.9, max(source, target) + 1.6)
    _title(figure, title)
    grid = figure.add_gridspec(1, 3, width_ratios=(source, target, source))
    every = []
    for i, (mean, (name, rows, columns)) in enumerate(zip(means, parts, strict=True)):
        axes = figure.add_subplot(grid[i])
        _map(axes, mean, rows, columns, max(other.max() for other in means))
        axes.set_title(name, fontsize=10)
        every.append(axes)
    which = "mean of layers and heads" if layer is None else "mean of heads"
    _colour_bar(figure, every, f"attention weight, {which}")
    _save(figure, path)


def positions(encodings, path):
    """The encodings of positions, Section 3.5, and how alike any two of them are. (T, D)"""
    encodings = np.asarray(encodings, "float32")
    norms = np.linalg.norm(encodings, axis=1, keepdims=True)
    alike = (encodings @ encodings.T) / np.maximum(norms * norms.T, 1e-12)
    figure = _figure(11.5, 4.6)
    panels = (
        ("encodings", encodings, "dimension", "value"),
        ("likeness of two positions", alike, "position", "cosine"),
    )
    for i, (title, values, across, unit) in enumerate(panels):
        axes = figure.add_subplot(1, 2, i + 1)
        limit = float(np.abs(values).max()) or 1.0
        image = axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_xlabel(across)
        axes.set_ylabel("position")
        figure.colorbar(image, ax=axes, label=unit)
    _save(figure, path)


def schedule(rates, path):
    """Learning rates of steps 1, 2, ...: one sequence, or {name: sequence} to compare some."""
    curves = rates if isinstance(rates, dict) else {"": rates}
    figure = _figure(7, 3.8)
    axes = _axes(figure, (1, 1, 1), "learning rate", "step")
    for colour, (name, values) in zip(_cycle(LINES, len(curves)), curves.items(), strict=True):
        axes.plot(np.arange(1, len(values) + 1), _floats(values), color=colour, linewidth=1.8, label=_renderable(name))
    axes.set_ylim(bottom=0)
    if any(curves):
        axes.legend(frameon=False)
    _save(figure, path)


def by_length(rows, path):
    """BLEU by the length of the source.

    Args:
        rows: what `evaluation.by_length` gives: objects with `label`, `bleu`, `num_sentences` and `interval`.
    """
    figure = _figure(max(5.0, 1.1 * len(rows) + 1.2), 3.8)
    axes = _axes(figure, (1, 1, 1), "BLEU", "words of the source")
    axes.grid(visible=False, axis="x")
    heights = [row.bleu for row in rows]
    axes.bar(range(len(rows)), heights, color=BLUE, width=0.7)
    spans = [(i, row.interval) for i, row in enumerate(rows) if row.interval]
    if spans:
        axes.vlines(
            [i for i, _ in spans], *zip(*(span for _, span in spans), strict=True), color="black", linewidth=1.4
        )
    tops = [max(row.bleu, row.interval[1] if row.interval else 0) for row in rows]
    for i, (row, top) in enumerate(zip(rows, tops, strict=True)):
        label = f"{row.bleu:.1f}\n{row.num_sentences:,} sent."
        axes.annotate(label, (i, top), (0, 4), textcoords="offset points", ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(0, 1.2 * max([*tops, 1.0]))
    _save(figure, path)


# --- figures


def _figure(width, height):
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install "keras-transformer[plots]"') from error
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")


def _save(figure, path):
    figure.savefig(path, format="png")


def _axes(figure, place, title, across):
    axes = figure.add_subplot(*place)
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(across)
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.ticklabel_format(axis="y", scilimits=(-3, 5), useMathText=True)
    return axes


def _title(figure, title):
    if title:
        figure.suptitle(_renderable(title), fontsize=12, parse_math=False)


def _cycle(items, count):
    return [items[i % len(items)] for i in range(count)]


# --- curves


def _floats(values):
    return np.array([math.nan if value is None else float(value) for value in values])


def _mean(values):
    finite = values[np.isfinite(values)]
    return finite.mean() if len(finite) else math.nan


def _curve(records, kind, field):
    """(steps, values) of the records that have a finite value."""
    pairs = [(record["step"], record.get(field)) for record in records if record.get("kind") == kind]
    pairs = [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]
    return np.array([step for step, _ in pairs]), np.array([value for _, value in pairs], "float64")


def _draw_curve(axes, kind, steps, values):
    """The curve of training is thin and, where it is long, has its running mean on top; validations are dots."""
    if kind == "valid":
        axes.plot(steps, values, color=ORANGE, marker="o", markersize=4, linewidth=1.6, label="validation")
    elif len(values) < 100:
        axes.plot(steps, values, color=BLUE, linewidth=1.6, label="training")
    else:
        width = len(values) // 50
        running = np.convolve(values, np.ones(width) / width, mode="valid")
        axes.plot(steps, values, color=BLUE, linewidth=0.7, alpha=0.35)
        axes.plot(steps[width // 2 :][: len(running)], running, color=BLUE, linewidth=1.6, label="training")


def _plain_logarithm(axes):
    """A logarithmic axis with ordinary numbers on it."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


# --- maps


def _cut(weights, rows, columns):
    weights = np.asarray(weights).astype("float32")  # (..., T, S)
    if weights.shape[-2] < len(rows) or weights.shape[-1] < len(columns):
        raise ValueError(
            "There must be weights for every label. "
            f"Received: weights {weights.shape}, {len(rows)} rows, {len(columns)} columns."
        )
    return weights[..., : len(rows), : len(columns)]


def _mean_of_heads(weights, rows, columns, layer):
    weights = _cut(weights, rows, columns)  # (layers, [1,] H, T, S)
    if weights.ndim == 5:
        weights = weights[:, 0]
    return weights.mean(axis=(0, 1)) if layer is None else weights[layer].mean(axis=0)  # (T, S)


def _inches(pieces):
    """The side of a map with room for its labels."""
    return min(max(1.6, 0.19 * len(pieces)), MAX_INCHES)


def _map(axes, weights, rows, columns, highest):
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=highest, aspect="auto", interpolation="nearest")
    _label(axes.set_xticks, columns, rotation=90)
    _label(axes.set_yticks, rows)
    axes.tick_params(length=2, labelsize=7.5)


def _label(set_ticks, pieces, **style):
    shown = range(0, len(pieces), math.ceil(len(pieces) * 0.15 / MAX_INCHES))  # 0.15 inches: one line of a label
    set_ticks(shown, [_piece(pieces[i]) for i in shown], parse_math=False, **style)


def _colour_bar(figure, every, name):
    figure.colorbar(every[0].images[0], ax=every, label=name, shrink=min(1.0, 3.0 / figure.get_figheight()), aspect=25)


def _piece(piece):
    return _renderable(piece if len(piece) <= MAX_PIECE else piece[: MAX_PIECE - 1] + "…")


def _renderable(text):
    """The text with "□" for every character that matplotlib's fonts (`font.family` of its settings) do not have."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = [get_font(findfont(FontProperties(family=[family]))) for family in FontProperties().get_family()]
    known = [font.get_charmap() for font in fonts]
    return "".join(c if c.isprintable() and any(ord(c) in glyphs for glyphs in known) else "□" for c in text)
