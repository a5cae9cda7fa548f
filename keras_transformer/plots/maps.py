"""Maps: who attends to whom, and where positions lie."""

import math

import numpy as np

from keras_transformer.plots.figure import new_figure, renderable, save

MIN_INCHES, MAX_INCHES = 2.4, 7.0  # sides of an attention map
PIECE_INCHES = 0.19  # a row or column where there is room for all; a longer sentence is squeezed
LABEL_INCHES = 0.15  # one line of a label; where rows are narrower, only some have one
MAX_PIECE = 14  # letters of a label


def attention(weights, rows, columns, path, title=""):
    """One layer: a map for every head.

    Args:
        weights: (H, T, S); what lies beyond the labels is padding and is cut off.
        rows, columns: the pieces that attend and those that are attended to.
        path: of the picture.
        title: of the picture.
    """
    weights = _cut(weights, rows, columns)
    num_columns = min(4, len(weights))
    num_rows = math.ceil(len(weights) / num_columns)
    size = num_columns * (_inches(columns) + 0.8) + 1.2, num_rows * (_inches(rows) + 1.0) + 0.6
    figure = new_figure(*size, title)
    figure.supylabel("attends", fontsize=10)
    figure.supxlabel("is attended to", fontsize=10)
    panels = []
    for head, head_weights in enumerate(weights):
        panels.append(figure.add_subplot(num_rows, num_columns, head + 1))
        _map(panels[-1], head_weights, rows, columns, weights.max())
        panels[-1].set_title(f"head {head + 1}", fontsize=10)
    _colour_bar(figure, panels, "attention weight")
    save(figure, path)


def attention_of_sentence(maps, source_pieces, target_pieces, path, layer=-1, title=""):
    """One pair of sentences: who attends to whom in encoder, decoder and between them, as the mean of the heads.

    Row t of a decoder's map is the step that writes `target_pieces[t]`; its columns are what has been read by then.

    Args:
        maps: three arrays, encoder (layers, H, S, S), decoder (layers, H, T, T) and cross (layers, H, T, S), of one
            sentence: `AttentionMaps` with a batch of one will do.
        source_pieces: what the encoder reads, end of sentence included.
        target_pieces: what the decoder writes, end of sentence included.
        path: of the picture.
        layer: which one is shown; None: the mean of all.
        title: of the picture.
    """
    parts = (
        ("encoder", ("source", source_pieces), ("source", source_pieces)),
        ("decoder", ("written", target_pieces), ("read", ["<s>", *target_pieces[:-1]])),
        ("cross attention", ("written", target_pieces), ("source", source_pieces)),
    )
    means = [
        _mean_of_heads(weights, rows, columns, layer)
        for weights, (_, (_, rows), (_, columns)) in zip(maps, parts, strict=True)
    ]
    source, target = _inches(source_pieces), _inches(target_pieces)
    figure = new_figure(2 * source + target + 3.9, max(source, target) + 1.6, title)
    grid = figure.add_gridspec(1, 3, width_ratios=(source, target, source))
    which = "mean of layers, heads" if layer is None else "mean of heads"
    panels = []
    for i, (mean, (name, (down, rows), (across, columns))) in enumerate(zip(means, parts, strict=True)):
        panels.append(figure.add_subplot(grid[i]))
        _map(panels[-1], mean, rows, columns, mean.max())  # a scale of its own: a decoder's first step has only <s>
        panels[-1].set(title=name, ylabel=down, xlabel=across)
    for panel in panels:
        _colour_bar(figure, [panel], f"attention weight, {which}" if panel is panels[-1] else "")
    save(figure, path)


def positions(encodings, path):
    """The encodings of positions, Section 3.5, and how similar any two of them are.

    Args:
        encodings: a table (T, D), or several as a dict by name, each a row of the picture.
        path: the picture.
    """
    tables = encodings if isinstance(encodings, dict) else {"": encodings}
    figure = new_figure(11.5, 4.6 * len(tables))
    panels = []
    for name, encodings in tables.items():
        encodings, of = np.asarray(encodings, "float32"), f", {name}" if name else ""
        norms = np.linalg.norm(encodings, axis=1, keepdims=True)  # (T, 1)
        similarity = (encodings @ encodings.T) / np.maximum(norms * norms.T, 1e-12)  # (T, T)
        panels += [
            (f"encodings{of}", encodings, "dimension", "value"),
            (f"similarity of two positions{of}", similarity, "position", "cosine"),
        ]
    for i, (title, values, across, unit) in enumerate(panels, start=1):
        axes = figure.add_subplot(len(tables), 2, i)
        limit = float(np.abs(values).max()) or 1.0
        image = axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        axes.set_title(title, fontsize=11, loc="left")
        axes.set(xlabel=across, ylabel="position")
        figure.colorbar(image, ax=axes, label=unit)
    save(figure, path)


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
    return min(max(MIN_INCHES, PIECE_INCHES * len(pieces)), MAX_INCHES)


def _map(axes, weights, rows, columns, highest):
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=highest, aspect="auto", interpolation="nearest")
    _label(axes.set_xticks, columns, rotation=90)
    _label(axes.set_yticks, rows)
    axes.tick_params(length=2, labelsize=7.5)


def _label(set_ticks, pieces, **style):
    labelled = range(0, len(pieces), math.ceil(len(pieces) * LABEL_INCHES / MAX_INCHES))
    set_ticks(labelled, [_short(pieces[i]) for i in labelled], parse_math=False, **style)


def _short(piece):
    return renderable(piece if len(piece) <= MAX_PIECE else piece[: MAX_PIECE - 1] + "…")


def _colour_bar(figure, panels, name):
    height = min(1.0, 3.0 / figure.get_figheight())
    bar = figure.colorbar(panels[0].images[0], ax=panels, shrink=height, aspect=25, pad=0.01)
    bar.set_label(name, fontsize=9)
    bar.ax.tick_params(labelsize=8)
