"""Pictures are PNG files of a decent size that show the numbers they were given."""

import io
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread

from keras_transformer import plots

LAYERS, HEADS, S, T = 2, 3, 7, 5
SOURCE = ["▁Ein", "▁kl", "einer", "▁Hund", "▁läuft", ".", "</s>"]
TARGET = ["▁A", "▁small", "▁dog", "▁runs", "</s>"]


def is_picture(file):
    """Whether it is a PNG with at least 200 x 200 pixels that are not all the same."""
    pixels = imread(file, format="png")
    return min(pixels.shape[:2]) >= 200 and float(np.ptp(pixels)) > 0.5


def softmax(x):
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.fixture
def shown(monkeypatch):
    """The figures that were saved, before they became pixels."""
    figures = []
    for name in ("curves", "maps"):
        module = sys.modules[f"keras_transformer.plots.{name}"]
        monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    return figures


@pytest.fixture
def maps(rng):
    sides = ((S, S), (T, T), (T, S))
    return tuple(softmax(rng.normal(size=(LAYERS, HEADS, *side))) for side in sides)


def test_a_long_title_is_wrapped_and_a_very_long_one_ends(maps, shown):
    for words, num_lines in ((40, 2), (400, 4)):
        title = " ".join(["words"] * words)
        plots.attention(maps[2][0], TARGET, SOURCE, io.BytesIO(), title=title)
        figure = shown.pop()
        lines = figure.get_suptitle().split("\n")
        assert num_lines <= len(lines) <= 4 and lines[-1].endswith("…") == (len(lines) == 4 and words == 400)
        box = figure._suptitle.get_window_extent(FigureCanvasAgg(figure).get_renderer())
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width


def records(num_steps):
    train = [
        {
            "kind": "train",
            "step": step,
            "loss": 9 / step + 2,
            "perplexity": math.exp(9 / step),
            "learning_rate": 1e-4 * step,
            "tokens_per_second": 3000.0 + step,
            "gradient_norm": None if step == 3 else 1.0,
        }
        for step in range(1, num_steps + 1)
    ]
    valid = [{"kind": "valid", "step": num_steps, "loss": 3.0, "perplexity": 20.0, "bleu": 12.5, "seconds": 90.0}]
    return train + valid


def test_a_learning_curve_is_a_picture(tmp_path):
    plots.learning_curve(records(1), tmp_path / "curve.png")
    plots.learning_curve(records(500), str(tmp_path / "curve_by_name"))
    assert is_picture(tmp_path / "curve.png") and is_picture(tmp_path / "curve_by_name")


def test_a_learning_curve_has_a_panel_for_what_was_logged(shown):
    plots.learning_curve(records(11), None)
    titles = [axes.get_title("left") for axes in shown[0].axes]
    assert titles == ["loss, a token", "perplexity", "BLEU", "learning rate", "target tokens a second", "gradient norm"]
    assert [axes.get_yscale() for axes in shown[0].axes] == ["linear", "log", *["linear"] * 4]
    assert [axes.get_ylim()[0] == 0 for axes in shown[0].axes] == [False, False, *[True] * 4]
    steps, losses = shown[0].axes[0].lines[0].get_data()
    assert list(steps) == list(range(1, 12)) and losses[2] == 5.0
    assert list(shown[0].axes[5].lines[0].get_xdata()) == [1, 2, *range(4, 12)]  # None at step 3
    (minutes,), (scores,) = shown[0].axes[2].lines[0].get_data()
    assert shown[0].axes[2].get_xlabel() == "minutes" and (minutes, scores) == (1.5, 12.5)
    plots.learning_curve([{"kind": "valid", "step": 1, "bleu": 0.0, "loss": math.inf, "seconds": 1.0}], None)
    assert [axes.get_title("left") for axes in shown[1].axes] == ["BLEU"]


@pytest.mark.parametrize("kinds", [["train", "valid"], ["train"], ["valid"]])
def test_a_legend_names_what_is_drawn(shown, kinds):
    plots.learning_curve([record for record in records(11) if record["kind"] in kinds], None)
    names = [text.get_text() for text in shown[0].axes[0].get_legend().get_texts()]
    assert names == [{"train": "training", "valid": "validation"}[kind] for kind in kinds]


def test_a_learning_curve_of_nothing_is_refused():
    with pytest.raises(ValueError, match="Received: 0 without any"):
        plots.learning_curve([], io.BytesIO())


def test_a_long_curve_has_its_running_mean_in_place(shown):
    line = [{"kind": "train", "step": step, "loss": float(step)} for step in range(1, 502)]
    plots.learning_curve(line, None)
    steps, means = shown[0].axes[0].lines[1].get_data()
    assert np.allclose(steps, means, atol=0.51)  # the running mean of a straight line is the line


def test_attention_has_a_map_for_every_head(shown, maps):
    cross = maps[2][0]
    plots.attention(np.pad(cross, ((0, 0), (0, 2), (0, 3))), TARGET, SOURCE, None, "a title")
    *heads, _ = shown[0].axes  # the last is the colour bar
    for axes, weights in zip(heads, cross, strict=True):
        assert np.allclose(axes.images[0].get_array(), weights)
        assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
        assert [label.get_text() for label in axes.get_yticklabels()] == TARGET


@pytest.mark.parametrize("layer", [-1, 0, None])
def test_the_three_attentions_of_a_sentence(shown, maps, layer):
    plots.attention_of_sentence(maps, SOURCE, TARGET, None, layer=layer)
    with_batch = tuple(weights[:, None] for weights in maps)
    plots.attention_of_sentence(with_batch, SOURCE, TARGET, None, layer=layer)
    for figure in shown:
        for axes, weights in zip(figure.axes, maps, strict=False):
            expected = weights.mean(axis=(0, 1)) if layer is None else weights[layer].mean(axis=0)
            assert np.allclose(axes.images[0].get_array(), expected)
    decoder = shown[0].axes[1]
    assert [label.get_text() for label in decoder.get_xticklabels()] == ["<s>", *TARGET[:-1]]
    assert [label.get_text() for label in decoder.get_yticklabels()] == TARGET


def test_odd_pieces_are_drawn_without_a_warning(tmp_path, maps):
    odd = ["▁猫", "🙂$x_", "\n\x00", "\ud800", "", "אבג", "x" * 99]
    plots.attention(maps[0][0], odd, odd, tmp_path / "odd.png", "猫 $5_{")
    assert is_picture(tmp_path / "odd.png")


def test_labels_say_what_the_font_cannot(shown, maps):
    plots.attention(maps[0][0][:, :3, :3], ["▁a猫", "\n", "x" * 99], ["a"] * 3, None)
    labels = [label.get_text() for label in shown[0].axes[0].get_yticklabels()]
    assert labels[:2] == ["▁a□", "□"] and len(labels[2]) == 14 and labels[2].endswith("…")


@pytest.mark.parametrize(("piece", "explained"), [("猫", True), ("ä", False)])
def test_boxes_are_explained(monkeypatch, maps, piece, explained):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    plots.attention(maps[0][0][:, :1, :1], [piece], ["a"], None)
    assert figures[0].get_supxlabel().startswith("is attended to")
    assert ("□: not in" in figures[0].get_supxlabel()) == explained


def test_a_long_sentence_has_fewer_labels_and_a_bounded_picture(shown, rng):
    pieces = [f"w{i}" for i in range(211)]
    plots.attention(softmax(rng.normal(size=(1, 211, 211))), pieces, pieces, None)
    assert len(shown[0].axes[0].get_xticklabels()) < 60 and max(shown[0].get_size_inches()) < 12


def test_weights_without_labels_are_refused(maps):
    with pytest.raises(ValueError, match="3 rows, 8 columns"):
        plots.attention(maps[0][0], ["a"] * 3, ["a"] * 8, io.BytesIO())


def test_the_other_pictures(tmp_path, maps, rng):
    plots.attention_of_sentence(maps, SOURCE, TARGET, tmp_path / "sentence.png", title="Ein kleiner Hund läuft.")
    plots.positions(rng.normal(size=(13, 6)), tmp_path / "positions.png")
    plots.positions({side: rng.normal(size=(9, 6)) for side in ("source", "target")}, tmp_path / "both.png")
    plots.schedule(np.linspace(1e-4, 1e-3, 17), tmp_path / "schedule.png")
    rows = [
        SimpleNamespace(label="up to 5", bleu=41.2, num_sentences=1234, interval=(40.0, 43.0)),
        SimpleNamespace(label="over 5", bleu=0.0, num_sentences=1, interval=None),
    ]
    plots.by_length(rows, tmp_path / "length.png")
    plots.by_length(rows[1:], tmp_path / "one.png")
    for name in ("sentence", "positions", "both", "schedule", "length", "one"):
        assert is_picture(tmp_path / f"{name}.png"), name


def test_an_open_file_will_do_and_the_picture_repeats():
    files = io.BytesIO(), io.BytesIO()
    for file in files:
        plots.schedule([1, 2, 3], file)
        assert is_picture(io.BytesIO(file.getvalue()))
    assert files[0].getvalue() == files[1].getvalue()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install -e "\.\[plots\]"'):
        plots.schedule([1, 2], io.BytesIO())


def test_matplotlib_comes_with_the_first_picture_and_pyplot_never():
    program = (
        "import io, sys, types; package = sys.modules['keras_transformer'] = types.ModuleType('keras_transformer');"
        f"package.__path__ = [{str(Path(plots.__file__).parents[1])!r}];"
        "from keras_transformer import plots; plots.sparkline([1, 2]);"
        "assert 'matplotlib' not in sys.modules; plots.schedule([1, 2], io.BytesIO());"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1, 1], "▁▁▁"),
        ([0, 7], "▁█"),
        (range(8), "▁▂▃▄▅▆▇█"),
    ],
)
def test_sparklines(values, expected):
    assert plots.sparkline(values) == expected


def test_a_long_sparkline_has_the_width_asked_for():
    assert plots.sparkline(range(1000), width=8) == "▁▂▃▄▅▆▇█"
