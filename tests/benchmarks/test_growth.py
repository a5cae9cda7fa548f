"""benchmarks/growth.py"""

import sys

import growth
import pytest
from matplotlib.image import imread


@pytest.fixture
def points(monkeypatch):
    """{axis: [what is measured at each value]}, the work and the other argument."""
    monkeypatch.setattr(growth, "search", lambda work, vocab_size=8000: (work, vocab_size))
    monkeypatch.setattr(growth, "step", lambda work, replicas=1: (work, replicas))
    return {name: [axis.make(value) for value in axis.values] for name, axis in growth.AXES.items()}


def test_the_axes_cross_in_the_middle(points):
    for name in ("batch", "beam", "source", "sentence", "vocabulary"):
        assert points[name][len(points[name]) // 2] == (growth.SEARCH, 8000), name
    assert points["length"][2] == points["replicas"][0] == (growth.STEP, 1)


def test_longer_sentences_are_fewer_for_it(points):
    for work, _ in points["length"]:
        assert work.batch * work.source_length == work.batch * work.target_length == growth.STEP.amount


def test_replicas_share_one_batch_evenly(points):
    for work, replicas in points["replicas"]:
        assert work == growth.STEP and work.batch % replicas == 0


def test_doublings():
    assert growth.doublings(1000, 64_000) == [1000, 2000, 4000, 8000, 16_000, 32_000, 64_000]
    assert growth.doublings(1, 1) == [1]


def record(axis, value):
    return {"axis": axis, "value": value, "median": 10.0 + value, "min": 9.0 + value, "max": 12.0 + value}


def test_a_panel_for_every_size_that_was_changed(monkeypatch):
    figures = []
    monkeypatch.setattr(growth, "save", lambda figure, path: figures.append(figure))
    growth.draw([record(name, value) for name, axis in growth.AXES.items() for value in axis.values], None)
    growth.draw([record("beam", 1), record("beam", 2)], None)
    every, one = figures
    assert [axes.get_xlabel() for axes in every.axes] == [horizontal for _, horizontal, _ in growth.PANELS]
    [axes] = one.axes
    assert [list(line.get_ydata()) for line in axes.lines if line.get_marker() == "o"] == [[11.0, 12.0]]


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "most"), [("batch", 2), ("replicas", 2)])
def test_points_and_their_picture(run_script, tmp_path, axis, most):
    picture = tmp_path / "growth.png"
    records = run_script("growth.py", "--axis", axis, "--most", most, "--repeats", 2, "--picture", picture)
    assert [(record["work"], record["axis"], record["value"]) for record in records] == [
        (f"{axis} 1", axis, 1),
        (f"{axis} 2", axis, 2),
    ]
    for record in records:
        assert 0 < record["min"] <= record["median"] <= record["max"] and record["unit"] == "ms"
    assert imread(picture).shape[1] > 400


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", [growth.__file__, "--picture", str(tmp_path / "nowhere" / "x.png")])
    with pytest.raises(SystemExit):
        growth.main()
    assert "No such file or directory" in capsys.readouterr().err
