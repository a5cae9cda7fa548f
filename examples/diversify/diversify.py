r"""Trains a model on a text and on two machine translations of it: data diversification (Nguyen et al. 2020).

    python examples/diversify/diversify.py --recipe examples/multi30k_en_de/recipe.toml --workdir runs/diversified

It needs no other text than the recipe's, and the model is as large as the recipe says. In WORKDIR:

    source.txt, target.txt       the text that the recipe trains on
    forward/, backward/          two helpers, one a direction, trained at the same time on half of the cores each
    forward.txt, backward.txt    source.txt and target.txt in the other language, by the helpers
    model/                       the recipe's model, trained on the text and on each side with its translation

Each folder is an ordinary run of train_keras.py. Its output is in FOLDER.log, that of a helper's translating in
FOLDER-translation.log. The helpers have the recipe too, except for HELPER. The same command again goes on where it was.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where logged.py lies

from logged import run_together, training_command

from keras_transformer_cli.importing import importing_tensorflow

with importing_tensorflow():
    from keras_transformer.commands.lines import chunks, count_lines, open_output
    from keras_transformer.config import Config, differences
    from keras_transformer.data.sources import evaluation_corpus, files, read_pairs, splits
    from keras_transformer.files import sync, write_json
    from keras_transformer.progress import duration
    from keras_transformer.recipes import load_recipe
    from keras_transformer.training.workdir import Workdir

HELPER = ("train.start_from=none", "train.export=false")
TAKEN = ("data.train", "data.valid", "data.test", "data.reverse", "data.max_pairs")  # the text is that of --set
OWN = ("source.txt", "target.txt", "forward", "backward", "forward.txt", "backward.txt", "model")
READS = {"forward": "source.txt", "backward": "target.txt"}  # what each helper translates


def main(arguments=None):
    options, recipe = parse(arguments)
    folder = Workdir(Path(options.workdir).resolve())
    try:
        prepare(options, recipe, folder)
        diversify(options, recipe, folder.path)
    finally:
        folder.unlock()
    print(f"The model is {folder.path / 'model'}, a run like any other.")
    return 0


def diversify(options, recipe, workdir):
    """Everything behind the preparation."""
    stage("Two helpers", {name: helper_command(name, options, recipe, workdir) for name in READS}, options, workdir)
    if missing := [name for name in READS if not is_translated(name, workdir)]:
        commands = {f"{name}-translation": translation_command(name, recipe, workdir) for name in missing}
        stage("Their translations", commands, options, workdir)
    if missing := [name for name in READS if not is_translated(name, workdir)]:
        raise SystemExit(f"error: Every line of {READS[missing[0]]} must have a translation. See {missing[0]}.partial.")
    stage("The model", {"model": model_command(options, recipe, workdir)}, options, workdir)


def parse(arguments):
    """-> the options, the model's configuration"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", metavar="FILE", required=True, help="recipe of the model")
    parser.add_argument("--workdir", metavar="FOLDER", default="runs/diversified", help="%(default)s")
    setting = dict(metavar="SECTION.FIELD=VALUE", action="append", default=[])
    parser.add_argument("--set", help="for the model and the helpers, except for the helpers' own settings", **setting)
    parser.add_argument("--helper", help=f"for the helpers alone; their own settings: {', '.join(HELPER)}", **setting)
    parser.add_argument("--in-turn", action="store_true", help="one helper after the other, as on a GPU")
    options = parser.parse_args(arguments)
    if taken := [setting for setting in options.helper if setting.strip().startswith(TAKEN)]:
        parser.error(f"--helper cannot change the text; --set can, for all. Received: {taken[0]}.")
    try:
        recipe, _ = load_recipe(options.recipe, options.set), helper(options)
        has_valid = recipe.data.valid is not None or "valid" in splits(recipe.data.train)
    except ValueError as error:  # of the configuration, or of a corpus that is not there
        parser.error(str(error))
    if not has_valid:
        parser.error("the recipe must name data.valid: pairs held out of its text would come back in a translation.")
    return options, recipe


def helper(options) -> Config:
    return load_recipe(options.recipe, [*options.set, *HELPER, *options.helper])


def prepare(options, recipe, folder):
    """Locks the folder, refuses it where it was made otherwise, and writes the text."""
    try:
        folder.lock()
        claim(folder.path, {"model": recipe.to_dict(), "helper": helper(options).to_dict()})
        if not (folder.path / "target.txt").exists():
            write_sides(recipe.data, folder.path)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error


def claim(workdir, plan):
    path = workdir / "plan.json"
    if not path.exists():
        if others := [name for name in OWN if (workdir / name).exists()]:
            raise ValueError(f"{workdir} holds {others[0]}, and no plan.json of this program: give another --workdir.")
        write_json(path, plan)
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: Config.from_dict(values).to_dict() for name, values in kept.items()}
    if differing := differences(kept, plan):
        raise ValueError(f"{workdir} was made with another {', '.join(differing)}: give that, or another --workdir.")


def write_sides(data, workdir):
    """Both sides of the text as files, a sentence a line; target.txt is there when they are whole."""
    partial = [workdir / f"{name}.partial" for name in ("source", "target")]
    with open_output(partial[0], *files(data.train)) as write, open_output(partial[1], *files(data.train)) as write_too:
        for pairs in chunks(read_pairs(data.train, reverse=data.reverse, limit=data.max_pairs), 10_000):
            sources, targets = zip(*pairs, strict=True)
            write(sources)
            write_too(targets)
    for path in partial:
        sync(path)
        os.replace(path, path.with_suffix(".txt"))


def is_translated(name, workdir) -> bool:
    """Whether there is a translation, which becomes one when it has all its lines."""
    partial, whole = workdir / f"{name}.partial", workdir / f"{name}.txt"
    if partial.exists() and count_lines(partial) == count_lines(workdir / READS[name]):
        os.replace(partial, whole)
    return whole.exists()


def stage(what, commands, options, workdir):
    """Runs commands, what each says in WORKDIR/NAME.log, and says how long they took."""
    began = time.monotonic()
    print(f"{what}: {', '.join(f'{workdir / name}.log' for name in commands)}", flush=True)
    jobs = [(command, workdir / name) for name, command in commands.items()]
    for together in [[job] for job in jobs] if options.in_turn else [jobs]:
        run_together(together)
    print(f"    {duration(time.monotonic() - began)}", flush=True)


# --- the commands

TEXT = ("source.txt", "target.txt")
DIVERSIFIED = (TEXT, ("backward.txt", "target.txt"), ("source.txt", "forward.txt"))


def helper_command(name, options, recipe, workdir) -> list:
    is_reversed = recipe.data.reverse != (name == "backward")
    settings = [*options.set, *HELPER, *options.helper, *text(recipe.data, [TEXT], workdir)]
    settings += [f"data.reverse={json.dumps(is_reversed)}"]
    return training_command(workdir / name, settings, options.recipe)


def translation_command(name, recipe, workdir) -> list:
    longest = max(recipe.data.max_length, recipe.decode.max_input_length)  # half a sentence is no translation
    command = [sys.executable, "-m", "keras_transformer", "translate", "--workdir", workdir / name]
    command += ["--input", workdir / READS[name], "--output", workdir / f"{name}.partial"]
    return [*command, "--set", f"decode.max_input_length={longest}"]


def model_command(options, recipe, workdir) -> list:
    settings = [*options.set, *text(recipe.data, DIVERSIFIED, workdir)]
    return training_command(workdir / "model", settings, options.recipe)


def text(data, pairs, workdir) -> list:
    """The settings to train on pairs of files of WORKDIR, source and target, with the recipe's other sets."""
    sides = [[str(workdir / name) for name in side] for side in zip(*pairs, strict=True)]
    corpora = {
        "train": sides[::-1] if data.reverse else sides,
        "valid": data.train if data.valid is None else data.valid,  # what brings a validation set along
        "test": evaluation_corpus(data),
    }
    settings = [f"data.{name}={json.dumps(corpus, ensure_ascii=False)}" for name, corpus in corpora.items() if corpus]
    return [*settings, "data.max_pairs=none"]


if __name__ == "__main__":
    sys.exit(main())
