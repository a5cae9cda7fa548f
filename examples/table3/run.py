"""Trains every row of the paper's Table 3, scaled down to a budget, and prints the table beside the paper's.

    python examples/table3/run.py --data data/multi30k --minutes 600 --workdir runs/table3
    python examples/table3/run.py --data data/multi30k --steps 2000 --factor 8 --rows A1 C1 D1 --workdir runs/few

FOLDER holds train.en, train.de, valid.en and valid.de. All rows make the same number of steps: that of --steps, or as
many as fit into --minutes by the time that a few steps of base take. Each row is a run of its own, WORKDIR/ROW,
trained by train_keras.py and scored by keras-transformer evaluate on the validation set; their output is in
WORKDIR/ROW.log. The same command again goes on where it was: a finished row is not touched. Results: WORKDIR/table3.md
and table3.json.
"""

import argparse
import itertools
import json
import shutil
import statistics
import sys
import time
from pathlib import Path

from keras_transformer_cli.importing import importing_tensorflow

with importing_tensorflow():
    from comparison import markdown, perplexity_of
    from paper import FACTORS, ROWS, cost, scaled
    from row import TOKENS_PER_BATCH, files, is_finished, result, run_logged, settings_of, train, training_command

    from keras_transformer.config import ConfigError
    from keras_transformer.files import write_json, write_text
    from keras_transformer.recipes import load_recipe
    from keras_transformer.training.journal import read_log

TIMED_STEPS = 30  # of base, where --steps is not given
FEWEST_STEPS = 100  # less is no training
OWN = (  # of a row, or of all
    "preset", "model.", "data.train", "data.valid", "data.reverse", "train.steps", "train.log_steps", "train.seed",
    "train.label_smoothing",
)  # fmt: skip


def main(arguments=None):
    options = parse(arguments)
    workdir = Path(options.workdir).resolve()
    plan = make_plan(options, workdir)
    names = chosen(options)
    print(f"{len(names)} rows of {plan['steps']:,} steps in {workdir}", flush=True)
    for name in names:
        began, is_new = time.monotonic(), not is_finished(workdir / name)
        if is_new:
            train(name, plan, workdir)
        results = [result(each, workdir) for each in ROWS if is_finished(workdir / each)]  # also of earlier calls
        report = write(results, plan, workdir)
        print(line(result(name, workdir), time.monotonic() - began if is_new else None), flush=True)
    print(f"\n{report}")
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="FOLDER", required=True, help="train.en, train.de, valid.en, valid.de")
    parser.add_argument("--languages", nargs=2, metavar=("FROM", "TO"), default=["en", "de"])
    parser.add_argument("--workdir", metavar="FOLDER", default="runs/table3", help="%(default)s")
    parser.add_argument("--minutes", type=float, default=600, help="for everything, about (%(default)s)")
    parser.add_argument("--steps", type=int, metavar="N", help="of every row, instead of --minutes")
    parser.add_argument("--factor", type=int, choices=FACTORS, default=4, help="divides the widths (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same for every row (%(default)s)")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW", help="only these rows, and base")
    parser.add_argument("--set", metavar="SECTION.FIELD=VALUE", action="append", default=[], help="for every row")
    options = parser.parse_args(arguments)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps must be at least 1. Received: {options.steps}.")
    if taken := [setting for setting in options.set if setting.strip().startswith(OWN)]:
        parser.error(f"--set cannot change what makes a row, or what all rows have in common. Received: {taken[0]}.")
    try:
        load_recipe(None, [*options.set, f"train.seed={options.seed}"])
        Path(options.workdir).mkdir(parents=True, exist_ok=True)
    except (ConfigError, OSError) as error:
        parser.error(str(error))
    return options


def chosen(options) -> list[str]:
    return [name for name in ROWS if name == "base" or not options.rows or name in options.rows]


# --- the plan: what all rows have in common


def make_plan(options, workdir) -> dict:
    """What all rows have in common: made once, then kept, so that every row of a table was trained alike."""
    path = workdir / "plan.json"
    plan = {"data": str(Path(options.data).resolve()), "languages": options.languages}
    plan |= {"factor": options.factor, "seed": options.seed, "set": options.set}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        asked = plan | ({"steps": options.steps} if options.steps else {})
        if differing := [name for name in asked if asked[name] != kept[name]]:
            raise SystemExit(f"{path} was made with another {', '.join(differing)}: give that, or another --workdir.")
        check(kept, chosen(options))
        return kept
    for file in (file for split in ("train", "valid") for file in files(plan, split)):
        if not Path(file).is_file():
            raise SystemExit(f"--data must hold {Path(file).name}. Received: {file}, which is not a file.")
    plan["steps"] = options.steps or steps_within(options, plan, workdir)
    check(plan, chosen(options))  # before it is kept, for then it cannot be changed
    write_json(path, plan)
    return plan


def check(plan, names):
    """Ends the program where a row could not be trained by the plan."""
    try:
        for name in names:
            load_recipe(None, settings_of(name, plan))
    except ConfigError as error:
        raise SystemExit(f"error: {error}") from error


def steps_within(options, plan, workdir) -> int:
    """How many steps every row can make within the minutes, by the time that a few steps of base take."""
    step, start, elapsed = time_base(plan, workdir / "timing")
    costs = {name: cost(scaled(ROWS[name], options.factor, 1)) for name in chosen(options)}
    seconds = 60 * options.minutes - elapsed
    steps = affordable(seconds, step, start, [each / costs["base"] for each in costs.values()])
    print(f"{step:.2f} s a step of base, {start:.0f} s before the first: {steps:,} steps a row", flush=True)
    if steps < FEWEST_STEPS:
        raise SystemExit(
            f"{options.minutes:g} minutes are too few for {len(costs)} rows of at least {FEWEST_STEPS} steps. "
            "Give more minutes, a larger --factor, fewer --rows, or --steps."
        )
    return steps


def time_base(plan, folder) -> tuple[float, float, float]:
    """Seconds of a step, seconds before the first one (importing, preparing, compiling), seconds of this all."""
    print(f"Timing {TIMED_STEPS} steps of base ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    few = plan | {"steps": TIMED_STEPS, "set": [*plan["set"], "train.cooldown_steps=0"]}  # which may be for more steps
    run_logged(training_command(folder, settings_of("base", few)), folder)
    elapsed = time.monotonic() - began
    at = [record["seconds"] for record in read_log(folder / "log.jsonl") if record["kind"] == "train"]
    intervals = [later - earlier for earlier, later in itertools.pairwise(at)]
    step = statistics.median(intervals) * len(at) / TIMED_STEPS
    return step, elapsed - TIMED_STEPS * step, elapsed


def affordable(seconds, step, start, relative_costs) -> int:
    """Steps of every row. A row starts twice, to train and to be evaluated, which takes about as long to begin."""
    return max(0, int((seconds - 2 * start * len(relative_costs)) / (step * sum(relative_costs))))


# --- results


def write(results, plan, workdir) -> str:
    """Writes both files; returns the readable one."""
    source, target = plan["languages"]
    about = (
        f"{Path(plan['data']).name} {source}-{target}, {plan['steps']:,} steps of at most {TOKENS_PER_BATCH:,} "
        f"positions a side in every row, seed {plan['seed']}, the same tokenizer in all."
    )
    if plan["set"]:
        about += f" Besides: {', '.join(plan['set'])}."
    text = markdown(results, factor=plan["factor"], steps=plan["steps"], about=about)
    write_text(workdir / "table3.md", text)
    paper = {name: row._asdict() for name, row in ROWS.items()}
    write_json(workdir / "table3.json", {"plan": plan, "rows": results, "paper": paper})
    return text


def line(found, seconds) -> str:
    took = "was there" if seconds is None else f"{seconds / 60:.1f} min"
    return f"{found['row']:<5} perplexity {perplexity_of(found):8.3f}  BLEU {found['bleu']['value']:5.2f}  {took}"


if __name__ == "__main__":
    sys.exit(main())
