"""Measures how cost grows with one size, while all others stay as they are at one point in the middle: the small model.

python benchmarks/growth.py --picture growth.png                     # all axes, each point in a process of its own
python benchmarks/growth.py --axis batch beam --most 4               # two of them, no further than 4

    milliseconds of a search                       milliseconds of a step of training
    batch         sentences                        replicas    logical CPUs that share one and the same batch
    beam          beams of a sentence              length      pieces of source and target, at a constant
    source        pieces read                                  number of pieces in a batch
    sentence      pieces read, as many written
    vocabulary    pieces to choose from
"""

import math
import os
import textwrap
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import decoding
import measure
import tensorflow as tf
import training
import works

from keras_transformer.commands.lines import check_output
from keras_transformer.plots.figure import BLUE, ORANGE, logarithmic, new_axes, new_figure, save

SEARCH = works.Decoding("small", batch=8, source_length=32, num_steps=32, beam_width=4, calls=1)
STEP = works.Training("small", batch=64, source_length=32, target_length=32, steps=1)
VOCAB_SIZE = works.MODELS["small"]["vocab_size"]


def search(work, vocab_size=VOCAB_SIZE):
    """A search, compiled."""
    call, [ids] = decoding.xla(work, vocab_size=vocab_size), works.sources(work, 1, vocab_size)
    assert (call(ids) > 0).sum() == work.batch * work.num_steps, "a hypothesis of another length"
    return lambda: call(ids)


def step(work, replicas=1):
    """A step of training, compiled."""
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    update = training.updates(work, True, "mirrored" if replicas > 1 else "one_device")
    update(1)
    return lambda: update(1)


def of_length(length):
    """The step with longer sentences, and so many fewer."""
    return STEP._replace(batch=STEP.amount // length, source_length=length, target_length=length)


def doublings(first, last):
    return [first << i for i in range((last // first).bit_length())]


class Axis(NamedTuple):
    values: list[int]
    make: Callable[[int], Callable]  # of a value: what is timed


AXES = {
    "batch": Axis(doublings(1, 64), lambda n: search(SEARCH._replace(batch=n))),
    "beam": Axis(doublings(1, 16), lambda n: search(SEARCH._replace(beam_width=n))),
    "source": Axis(doublings(8, 128), lambda n: search(SEARCH._replace(source_length=n))),
    "sentence": Axis(doublings(8, 128), lambda n: search(SEARCH._replace(source_length=n, num_steps=n))),
    "vocabulary": Axis(doublings(1000, 64_000), lambda n: search(SEARCH, n)),
    "replicas": Axis(doublings(1, 4), lambda n: step(STEP, n)),
    "length": Axis(doublings(8, 128), lambda n: step(of_length(n))),
}

PANELS = (  # vertical, horizontal, {axis: its name where there are two}
    ("search, ms", "sentences of a batch", {"batch": ""}),
    ("search, ms", "beam width", {"beam": ""}),
    ("search, ms", "pieces of the source", {"source": "32 pieces written", "sentence": "as many written as read"}),
    ("search, ms", "pieces of the vocabulary", {"vocabulary": ""}),
    ("training step, ms", "replicas on the same CPU", {"replicas": ""}),
    ("training step, ms", f"pieces of a sentence, {STEP.amount:,} in a batch", {"length": ""}),
)
CAPTION = (
    f"The small model. Search: {SEARCH.batch} sentences of {SEARCH.source_length} pieces, {SEARCH.num_steps} written, "
    f"beam width {SEARCH.beam_width}, a vocabulary of {VOCAB_SIZE:,}. Training step: {STEP.batch} pairs of "
    f"{STEP.source_length} pieces. One size at a time is changed. Bands: all repeats. Grey: in proportion to the size."
)


def main():
    parser = measure.command_line(__doc__)
    parser.add_argument("--axis", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--most", type=int, default=math.inf, help="leave out what is larger")
    parser.add_argument("--picture", help="a PNG of what was measured")
    options = parser.parse_args()
    for axis in options.axis:
        if options.most < min(AXES[axis].values):
            parser.error(f"--most must leave something of {axis}. Received: {options.most}.")
    if options.picture:
        try:
            check_output(options.picture)
        except ValueError as error:
            parser.error(str(error))
    records = []
    # A process each: replicas must be there before TensorFlow looks at its devices, and points shall be independent.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        for axis in options.axis:
            for value in (value for value in AXES[axis].values if value <= options.most):
                times = processes.submit(milliseconds, axis, value, options.repeats).result()
                records.append({"axis": axis, "value": value, "unit": "ms", **measure.spread(times)})
                measure.report({"work": f"{axis} {value:,}", **records[-1]})
    if options.picture:
        draw(records, options.picture)


def milliseconds(axis, value, repeats):
    call = AXES[axis].make(value)
    call()
    return [1000 * measure.timed(call) for _ in range(repeats)]


def draw(records, path):
    """A panel for every size that was changed, logarithmic both ways and all of the same height."""
    curves = {axis: [record for record in records if record["axis"] == axis] for axis in AXES}
    panels = [panel for panel in PANELS if any(curves[axis] for axis in panel[2])]
    limits = _limits(panels, curves)
    num_columns = min(3, len(panels))
    num_rows = math.ceil(len(panels) / num_columns)
    figure = new_figure(4.2 * num_columns, 3.4 * num_rows + 0.4)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    figure.supxlabel(textwrap.fill(CAPTION, 60 * num_columns), fontsize=9, x=0.01, ha="left")
    for place, (vertical, horizontal, names) in enumerate(panels, start=1):
        axes = new_axes(figure, (num_rows, num_columns, place), vertical, horizontal)
        _draw_panel(axes, {name: curves[axis] for axis, name in names.items() if curves[axis]})
        axes.set_ylim(limits[vertical])
    save(figure, path)


def _limits(panels, curves):
    """The ends of the vertical axes: the same for panels of the same cost, the same ratio for all.

    A repeat that something else held up may lie outside.
    """
    costs = {vertical: [] for vertical, _, _ in panels}
    for vertical, _, names in panels:
        costs[vertical] += [record["median"] for axis in names for record in curves[axis]]
    half = 1.4 * max(2.0, *(math.sqrt(max(cost) / min(cost)) for cost in costs.values()))
    centres = {vertical: math.sqrt(min(cost) * max(cost)) for vertical, cost in costs.items()}
    return {vertical: (centre / half, centre * half) for vertical, centre in centres.items()}


def _draw_panel(axes, curves):
    """Curves by name, over the slope that is in proportion."""
    axes.set_xscale("log", base=2)
    logarithmic(axes)
    for (name, records), color in zip(curves.items(), (BLUE, ORANGE), strict=False):
        values, medians, *ends = ([record[key] for record in records] for key in ("value", "median", "min", "max"))
        axes.fill_between(values, *ends, color=color, alpha=0.2, linewidth=0)
        axes.plot(values, medians, color=color, marker="o", markersize=4, linewidth=1.6, label=name)
    value, median = values[len(values) // 2], medians[len(values) // 2]
    axes.axline((value, median), (2 * value, 2 * median), color="#999999", linewidth=0.8, zorder=1)
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.minorticks_off()
    axes.tick_params(labelsize=9)
    axes.set_xlim(values[0] / 1.2, values[-1] * 1.2)
    if len(curves) > 1:
        axes.legend(frameon=False, loc="upper left")


if __name__ == "__main__":
    main()
