r"""What each choice of the Multi30k recipe is worth: one change at a time, some seeds, scores with intervals.

    python examples/ablation/ablation.py --workdir runs/ablation --seeds 1 2 3
    python examples/ablation/ablation.py --workdir runs/few --rows dropout_0.1 post_norm \
        --set train.steps=3000 --set train.cooldown_steps=1000

Every row is the recipe with one change (CHANGES), trained by train_keras.py in WORKDIR/ROW-SEED and scored by
keras-transformer evaluate on the validation and the test set. The same command again goes on where it was: what has
its scores is not touched. Results, of the rows and seeds that are asked for: WORKDIR/ablation.md and ablation.json.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where logged.py lies

from logged import ROOT, evaluation_command, run_logged, training_command

from keras_transformer_cli.importing import importing_tensorflow

with importing_tensorflow():
    from keras_transformer.config import Config, ConfigError, differences
    from keras_transformer.files import write_json, write_text
    from keras_transformer.recipes import load_recipe
    from keras_transformer.training.journal import read_log

RECIPE = ROOT / "examples" / "multi30k_en_de" / "recipe.toml"
BASE = "recipe"
CHANGES = {  # of the recipe, as --set of train_keras.py
    BASE: (),
    "adam": ("train.optimizer=adam",),
    "bpe_dropout": ("data.subword_sampling=0.1",),
    "dropout_0.1": ("model.dropout=0.1",),
    "dropout_0.2": ("model.dropout=0.2",),
    "vocab_3000": ("data.vocab_size=3000",),
    "vocab_10000": ("data.vocab_size=10000",),
    "post_norm": ("model.norm=post",),
    "no_cooldown": ("train.cooldown_steps=0",),
    "ema": ("train.ema_decay=0.999",),
}
SPLITS = ("valid", "test")
SCORED_BY = ("data.valid", "data.test", "data.reverse")
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # Student's t: two-sided, for the mean of so many seeds


def main(arguments=None):
    options = parse(arguments)
    workdir = Path(options.workdir).resolve()
    names = [name for name in CHANGES if name == BASE or not options.rows or name in options.rows]
    results = {name: [] for name in names}
    for seed in options.seeds:
        for name in names:
            results[name].append(result(name, seed, options.set, workdir))
            print(f"{name}, seed {seed}: {results[name][-1]['test']['bleu']:.2f}", flush=True)
        text = write(results, options, workdir)
    print(f"\n{text}")
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", metavar="FOLDER", default="runs/ablation", help="%(default)s")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N", help="up to 5, a run each (1)")
    parser.add_argument("--rows", nargs="+", choices=list(CHANGES), metavar="ROW", help="only these and the recipe")
    parser.add_argument("--set", metavar="SECTION.FIELD=VALUE", action="append", default=[], help="for every row")
    options = parser.parse_args(arguments)
    if not 1 <= len(set(options.seeds)) == len(options.seeds) <= max(T_95):
        parser.error(f"--seeds takes one to {max(T_95)} different numbers. Received: {options.seeds}.")
    if taken := [setting for setting in options.set if setting.strip().startswith(SCORED_BY)]:
        parser.error(f"--set cannot change what the rows are scored by. Received: {taken[0]}.")
    try:
        for seed in options.seeds:
            load_recipe(RECIPE, [*options.set, f"train.seed={seed}"])
        Path(options.workdir).mkdir(parents=True, exist_ok=True)
    except (ConfigError, OSError) as error:
        parser.error(str(error))
    return options


# --- one row with one seed: a run in a folder of its own


def result(name, seed, settings, workdir) -> dict:
    """Scores of the row, from its folder if they are there, else after training it."""
    folder, done = workdir / f"{name}-{seed}", workdir / f"{name}-{seed}" / "ablation.json"
    base = workdir / f"{BASE}-{seed}" if name != BASE else None
    changes = [*settings, *CHANGES[name], f"train.seed={seed}", "train.export=false"]
    config = load_recipe(RECIPE, changes).to_dict()
    if not done.exists():
        run_logged(training_command(folder, changes, RECIPE), folder)
        for split in SPLITS:
            run_logged(evaluation(split, folder, base), folder)
        found = {split: scores(folder / f"{split}.json") for split in SPLITS}
        write_json(done, {"config": config, **found, **about(folder)})
    found = json.loads(done.read_text(encoding="utf-8"))
    if differing := differences(Config.from_dict(found["config"]).to_dict(), config):
        raise SystemExit(f"{folder} was made with another {', '.join(differing)}: give that, or another --workdir.")
    return found


def evaluation(split, folder, base) -> list:
    """The command that translates and scores a split, in comparison with the recipe's run where that is another one."""
    texts, output = getattr(load_recipe(RECIPE).data, split), folder / f"{split}.txt"
    return evaluation_command(folder, *texts, output, output.with_suffix(".json"), base and base / output.name)


def scores(path) -> dict:
    """BLEU, and how much it is above that of the recipe with the same seed."""
    found = json.loads(path.read_text(encoding="utf-8"))
    bleu = found["scores"]["bleu"]
    difference = next((each for each in found["differences"] if each["name"] == "BLEU"), None)
    return {
        "bleu": bleu["value"],
        "signature": bleu["signature"],
        "difference": difference and difference["difference"],
        "interval": difference and difference["interval"],
    }


def about(folder) -> dict:
    """Of the weights that the run could have ended with, the BLEU on its validation sentences; and its minutes."""
    metadata = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    last = read_log(folder / "log.jsonl")[-1]
    weights = {name: record["bleu"] for name, record in metadata["validation"].items()}
    return {"weights": weights, "taken": metadata["weights"], "minutes": last["seconds"] / 60}


# --- the table


def write(results, options, workdir) -> str:
    """Writes both files; returns the readable one."""
    text = markdown(results, options)
    write_text(workdir / "ablation.md", text)
    write_json(workdir / "ablation.json", {"seeds": finished(results, options), "set": options.set, "rows": results})
    return text


def finished(results, options) -> list[int]:
    """The seeds that have results, of those that are asked for."""
    return options.seeds[: len(results[BASE])]


def markdown(results, options) -> str:
    *more, last = finished(results, options)
    seeds = f"{len(more) + 1} seeds" if more else f"seed {last}"
    besides = f" Besides, in every row: {', '.join(options.set)}." if options.set else ""
    how = "Student's t over the seeds" if more else "the paired bootstrap over the sentences"
    head = "| row | change | BLEU, valid | BLEU, test | to the recipe, test (95 %) | minutes |"
    lines = [head, "|---|---|---|---|---|---|"]
    lines += [f"| {name} | {', '.join(CHANGES[name])} | {cells(found)} |" for name, found in results.items()]
    table = "\n".join(lines)
    signature = results[BASE][0]["test"]["signature"]
    return f"""\
# What each choice is worth

One change of {RECIPE.relative_to(ROOT)} at a time, {seeds}.{besides} BLEU: {signature}. Intervals: {how}.

{table}
"""


def cells(found) -> str:
    valid, test = (statistics.fmean(each[split]["bleu"] for each in found) for split in SPLITS)
    minutes = statistics.fmean(each["minutes"] for each in found)
    return f"{valid:.2f} | {test:.2f} | {difference(found)} | {minutes:.0f}"


def difference(found) -> str:
    """The mean over the seeds, with its interval; nothing for the recipe itself."""
    values = [each["test"]["difference"] for each in found]
    if None in values:
        return ""
    mean, (low, high) = values[0], found[0]["test"]["interval"]
    if len(values) > 1:
        mean = statistics.fmean(values)
        margin = T_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
        low, high = mean - margin, mean + margin
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    sys.exit(main())
