r"""A model that learns from two translations of its own text besides: data diversification (Nguyen et al. 2020).

    python examples/diversify/diversify.py --recipe examples/multi30k_en_de/recipe.toml --workdir runs/diversified

It needs no other text than the recipe's, and the model is as large as the recipe says. In WORKDIR:

    source.txt, target.txt       the text that the recipe trains on
    forward/, backward/          two helpers, one a direction, trained at the same time on half of the cores each
    forward.txt, backward.txt    source.txt and target.txt in the other language, by the helpers
    model/                       the recipe's model, of the text and of either side with its translation

Each folder is an ordinary run of train_keras.py, and FOLDER.log what it said. The helpers have the recipe but for
HELPER: few steps, and the dropout that is best for so few. The same command again goes on where it was.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where logged.py lies

from logged import ROOT, run_together

from keras_transformer.commands.lines import open_output
from keras_transformer.config import ConfigError, DataConfig
from keras_transformer.data.sources import DataError, read_pairs
from keras_transformer.recipes import load_recipe

HELPER = ("train.steps=4000", "train.cooldown_steps=2000", "model.dropout=0.1", "train.export=false")
READS = {"forward": "source.txt", "backward": "target.txt"}  # what each helper translates


def main(arguments=None):
    options = parse(arguments)
    workdir = Path(options.workdir).resolve()
    workdir.mkdir(parents=True, exist_ok=True)
    try:
        write_sides(load_recipe(options.recipe, options.set).data, workdir)
    except (DataError, OSError) as error:
        raise SystemExit(str(error)) from error
    stage("two helpers", [(helper_command(name, options, workdir), workdir / name) for name in READS], options)
    if missing := [name for name in READS if not (workdir / f"{name}.txt").exists()]:
        jobs = [(translation_command(name, workdir), workdir / f"{name}.txt") for name in missing]
        stage("their translations", jobs, options)
        for name in missing:
            os.replace(workdir / f"{name}.partial", workdir / f"{name}.txt")
    stage("the model", [(model_command(options, workdir), workdir / "model")], options)
    print(f"keras-transformer evaluate --workdir {workdir / 'model'} --html report.html")
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", metavar="FILE", required=True, help="of the model")
    parser.add_argument("--workdir", metavar="FOLDER", default="runs/diversified", help="%(default)s")
    setting = dict(metavar="SECTION.FIELD=VALUE", action="append", default=[])
    parser.add_argument("--set", help="for the model and the helpers", **setting)
    parser.add_argument("--helper", help=f"for the helpers alone; now {', '.join(HELPER)}", **setting)
    parser.add_argument("--in-turn", action="store_true", help="one helper after the other, as on a GPU")
    options = parser.parse_args(arguments)
    try:
        data = load_recipe(options.recipe, [*options.set, *HELPER, *options.helper]).data
    except ConfigError as error:
        parser.error(str(error))
    if data.valid is None:
        parser.error(
            "the recipe must name its validation set, data.valid: one held out of train would be in it thrice."
        )
    return options


def write_sides(data: DataConfig, workdir):
    """Both sides of the text as files, a sentence a line."""
    with open_output(workdir / "source.txt") as write_source, open_output(workdir / "target.txt") as write_target:
        for source, target in read_pairs(data.train, reverse=data.reverse, limit=data.max_pairs):
            write_source([source])
            write_target([target])


def stage(what, jobs, options):
    """Runs commands, each with its log, and says how long they took."""
    began = time.monotonic()
    print(f"{what}: {', '.join(str(folder) for _, folder in jobs)}", flush=True)
    for together in [[job] for job in jobs] if options.in_turn else [jobs]:
        run_together(together)
    print(f"{what}: {(time.monotonic() - began) / 60:.0f} minutes", flush=True)


# --- the commands


def training_command(folder, recipe, settings) -> list:
    words = [word for setting in settings for word in ("--set", setting)]
    return [sys.executable, ROOT / "train_keras.py", "--recipe", recipe, "--workdir", folder, *words]


def helper_command(name, options, workdir) -> list:
    settings = [*options.set, *HELPER, *options.helper]
    if name == "backward":
        is_reversed = load_recipe(options.recipe, options.set).data.reverse
        settings += [f"data.reverse={json.dumps(not is_reversed)}"]
    return training_command(workdir / name, Path(options.recipe).resolve(), settings)


def translation_command(name, workdir) -> list:
    command = [sys.executable, "-m", "keras_transformer", "translate", "--workdir", workdir / name]
    return [*command, "--input", workdir / READS[name], "--output", workdir / f"{name}.partial"]


def model_command(options, workdir) -> list:
    source, target, forward, backward = (
        str(workdir / name) for name in ("source.txt", "target.txt", "forward.txt", "backward.txt")
    )
    sides = [[source, backward, source], [target, target, forward]]
    if load_recipe(options.recipe, options.set).data.reverse:
        sides.reverse()
    text = json.dumps(sides, ensure_ascii=False)
    settings = [*options.set, f"data.train={text}", "data.max_pairs=none"]
    return training_command(workdir / "model", Path(options.recipe).resolve(), settings)


if __name__ == "__main__":
    sys.exit(main())
