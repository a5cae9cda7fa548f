"""The command line of training, the same behind `train_keras.py` and `keras-transformer train`."""

import argparse
import shlex
from functools import partial
from pathlib import Path

import tensorflow as tf

from export import metadata, serving_files
from export.saved_model import check_sentences, export_saved_model
from export.versions import versions
from keras_transformer.commands.options import WORKDIR, add_workdir
from keras_transformer.config import ConfigError
from keras_transformer.data.sources import evaluation_corpus
from keras_transformer.files import read_json
from keras_transformer.recipes import parse_overrides, read_recipe, resolve
from keras_transformer.screen import say
from keras_transformer.tokenizer import Tokenizers
from keras_transformer.training.trainer import train
from keras_transformer_cli.options import add_file

HELP = """\
  nothing at all            the built-in English-German grammar (preset demo), a few minutes on two cores
  --set data.train='["a.en","a.de"]' --workdir runs/a      two text files, line by line (preset tiny: small corpora)
  --recipe examples/.../recipe.toml --workdir runs/b        a recipe: a TOML file of what differs from a preset
  --set preset=base --set train.steps=1000                  any value of the configuration
The same command again resumes an interrupted run. Exit codes: 0 finished, 1 error, 2 wrong usage, 130 interrupted by
SIGINT (Ctrl-C), 143 by SIGTERM; an interrupted run has saved its state."""


def add_arguments(parser):
    """The three options of training."""
    parser.epilog, parser.formatter_class = HELP, argparse.RawDescriptionHelpFormatter
    add_file(parser, "--recipe", "TOML file of what differs from a preset")
    add_workdir(parser, "folder of the run", default=None)
    parser.add_argument(
        "--set", metavar="SECTION.FIELD=VALUE", action="append", default=[], help="one value; may be repeated"
    )


def configure(options):
    """The configuration that is asked for. Without a recipe or a preset: `demo`, or `tiny` for text of one's own."""
    changes = parse_overrides(options.set)
    if options.recipe is None:
        own_text = changes.get("data", {}).get("train", "demo") != "demo"
        return resolve({"preset": "tiny" if own_text else "demo"}, changes)
    recipe = read_recipe(Path(options.recipe))
    config = resolve(recipe, changes)
    names_text = any("train" in given.get("data", {}) for given in (recipe, changes))
    if not names_text and changes.get("preset", recipe.get("preset")) != "demo":  # base would learn it for days
        raise ConfigError(f"A recipe must name its text, `train` in [data], or say demo. Received: {options.recipe}.")
    return config


def run(options) -> int:
    """Trains; returns the exit code. After a KeyboardInterrupt the same command makes again whatever was lost."""
    config = configure(options)
    if options.workdir is None and config.data.train != "demo":
        raise ConfigError(f"{WORKDIR} is for the built-in corpus; other text needs its own folder: --workdir FOLDER.")

    workdir = Path(options.workdir or WORKDIR)
    before, after = partial(check, workdir, config), partial(deliver, workdir, config)
    return train(config, workdir, check=before, deliver=after).exit_code


def check(workdir, config):
    """Refuses to train where the export would be refused: that should not wait for the last step."""
    if config.train.export:
        serving_files.check(workdir / "export")


def deliver(workdir, config):
    """Exports the finished model as a SavedModel, and shows how it translates a few sentences and what to try next."""
    say(f"\nThe finished model is {workdir}/model.keras.")
    if config.train.export:
        path = _exported(workdir)
        if path is None:
            path = _export(workdir)
        else:  # the process that has published it may have been killed right after
            serving_files.complete(path.parent, path)
        say(f"As a SavedModel for TF Serving, strings in and strings out: {path}")
    say("\nWhat to try next:")
    for command, comment in hints(workdir, config):
        say(f"  {command:<66}  # {comment}")


def hints(workdir, config):
    """Commands for a finished run, and what each is."""
    workdir = shlex.quote(str(workdir))
    yield f"keras-transformer translate --workdir {workdir}", "a sentence a line, Ctrl-D ends"
    if evaluation_corpus(config.data):
        yield f"keras-transformer evaluate --workdir {workdir} --html report.html", "scores with intervals"
    if config.train.export:
        yield f"python -m export.serve --model {workdir}/export", "a server on this machine (extra: server)"
    if config.data.train == "demo":
        yield (
            """keras-transformer train --set data.train='["a.en","a.de"]' --workdir runs/a""",
            "two text files of your own",
        )


def _exported(workdir):
    """The newest version, if it is one of the finished model."""
    to, model = workdir / "export", read_json(workdir / "model.json")
    published = versions(to) if to.is_dir() and model else []
    path = to / str(published[-1]) if published else None
    found = metadata.read(path) if path else {}
    return path if found.get("model") == model and not found.get("ensemble") else None


def _export(workdir):
    say("Exporting it with its search and its tokenizers, and checking its answers in a fresh process ...")
    path = export_saved_model(workdir, workdir / "export")
    texts = check_sentences(workdir, Tokenizers.load(workdir).source)[:5]
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    for text, translation in zip(texts, served(text=tf.constant(texts))["translation"].numpy().tolist(), strict=True):
        say(f"    {text}\n      -> {translation.decode()}")
    return path
