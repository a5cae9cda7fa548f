"""keras-transformer plot: pictures of a run and of what its model does."""

import argparse
from pathlib import Path

import numpy as np

from keras_transformer import plots
from keras_transformer.commands.lines import check_output, naming_full_disk
from keras_transformer.commands.options import add_workdir, files_of_runs
from keras_transformer.config import ConfigError
from keras_transformer.layers.embedding import sinusoidal_positions
from keras_transformer.plots.figure import SUFFIXES
from keras_transformer.training.journal import read_log
from keras_transformer.training.step import schedule_of
from keras_transformer.training.workdir import Workdir
from keras_transformer.translator import Translator
from keras_transformer_cli.options import add_file

EPILOG = """\
attention    who attends to whom in one sentence: encoder, decoder and cross attention (--source, --target, --layer),
             with --heads the cross attention of every head
curve        loss, perplexity, learning rate and speed against the steps, BLEU against the minutes
schedule     the learning rate of every step
positions    the encodings of the positions and how similar they are; learned ones of both sides"""

OF_ATTENTION = ("source", "target", "layer", "heads")


def add_arguments(parser):
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("kind", choices=sorted(KINDS), help="what is shown")
    add_workdir(parser, "folder of a run")
    add_file(parser, "--output", "the picture, .png, .svg or .pdf (KIND.png)")
    parser.add_argument("--source", metavar="TEXT", help="of attention: the sentence that is read")
    parser.add_argument("--target", metavar="TEXT", help="of attention: what is written (the best translation)")
    parser.add_argument("--layer", metavar="N", type=int, help="of attention: 1, 2, ... (the mean of all)")
    parser.add_argument("--heads", action="store_true", default=None, help="of attention: head by head")


def run(options) -> int:
    path = Path(options.output or f"{options.kind}.png")
    check_output(path, *files_of_runs(options.workdir))
    if path.suffix and path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--output must end with {', '.join(SUFFIXES)}, or have no ending (PNG). Received: {path}.")
    if options.kind != "attention" and (given := [name for name in OF_ATTENTION if getattr(options, name) is not None]):
        raise ConfigError(f"--{given[0]} belongs to plot attention. Received: plot {options.kind}.")
    with naming_full_disk(path):
        KINDS[options.kind](options, path)
    print(path)
    return 0


def _attention(options, path):
    if not (options.source or "").strip():
        raise ConfigError('plot attention needs a sentence: --source "...". Received: none.')
    translator = Translator.load(options.workdir)
    target = options.target if options.target is not None else translator.translate([options.source])[0]
    (alignment,) = translator.align([options.source], [target])
    shown = (alignment.maps.cross,) if options.heads else alignment.maps
    layer = _layer(options.layer, min(map(len, shown)))
    title = f"{options.source} → {target}"
    if not options.heads:
        pieces = alignment.source_pieces, alignment.target_pieces
        return plots.attention_of_sentence(alignment.maps, *pieces, path, layer=layer, title=title)
    weights = alignment.maps.cross.mean(axis=0) if layer is None else alignment.maps.cross[layer]  # (H, T, S)
    return plots.attention(weights, alignment.target_pieces, alignment.source_pieces, path, title=title)


def _layer(number, num_layers):
    """The index of a layer that is counted from 1."""
    if number is not None and not 1 <= number <= num_layers:
        raise ValueError(f"--layer must be between 1 and {num_layers}. Received: {number}.")
    return None if number is None else number - 1


def _curve(options, path):
    workdir = Workdir(options.workdir)
    workdir.load_config()  # there is a run
    records = read_log(workdir.log_path)
    if not records:
        raise ValueError(
            f"plot curve needs the log of a run. Received: {workdir.log_path}, missing or without a record."
        )
    plots.learning_curve(records, path)


def _schedule(options, path):
    config = _config(options)
    if not Workdir(options.workdir).tells_its_training():
        raise ValueError(
            f"Expected a run. {options.workdir} does not say how its model was trained: it was saved or packed alone."
        )
    schedule = schedule_of(config.train, config.model.d_model)
    plots.schedule(np.asarray(schedule(np.arange(config.train.steps))), path)


def _positions(options, path):
    config = _config(options)
    if config.model.positions == "learned":
        model = Translator.load(options.workdir).model
        tables = {"source": model.source_positions, "target": model.target_positions}
        plots.positions({name: table.weights[0].numpy() for name, table in tables.items()}, path)
    else:
        plots.positions(np.asarray(sinusoidal_positions(np.arange(128), config.model.d_model)), path)


def _config(options):
    return Workdir(options.workdir).load_config()


KINDS = {"attention": _attention, "curve": _curve, "schedule": _schedule, "positions": _positions}
