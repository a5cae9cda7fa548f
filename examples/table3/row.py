"""One row of the table: a run in a folder of its own, trained and scored by the commands that everybody has.

    WORKDIR/A1/          the run: see the README of the project
    WORKDIR/A1/dev.txt   its translations of the validation set
    WORKDIR/A1/dev.json  their evaluation, in comparison with base; it comes last: where it is, the row is finished
    WORKDIR/A1.log       what the commands said

A plan is what all rows have in common: data, languages, factor, steps, seed and further settings.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from paper import ROWS, scaled

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where logged.py lies

from logged import evaluation_command, run_logged, training_command

TOKENS_PER_BATCH = 2048  # positions a side: many small steps learn most in a short time


def train(name, plan, workdir):
    """Trains a row, or goes on with it, and scores it on the validation set."""
    folder, base = workdir / name, workdir / "base"
    for split in ("train", "valid") if name != "base" else ():  # prepared once; of the text comes the same tokenizer
        if not (folder / "data" / split).exists():
            shutil.copytree(base / "data" / split, folder / "data" / split)
    run_logged(training_command(folder, settings_of(name, plan)), folder)
    run_logged(evaluation(name, plan, workdir), folder)
    os.replace(folder / "dev.json.partial", folder / "dev.json")


def is_finished(folder) -> bool:
    return (folder / "dev.json").exists()


def settings_of(name, plan) -> list:
    """KEY=VALUE of a row, those of the command last."""
    config = scaled(ROWS[name], plan["factor"], plan["steps"])
    settings = {"preset": ROWS[name].key}
    settings |= {f"model.{field}": getattr(config.model, field) for field in ("d_model", "d_ff", "d_k", "d_v")}
    settings |= {f"data.{split}": json.dumps(files(plan, split)) for split in ("train", "valid")}
    settings |= {"data.vocab_size": config.data.vocab_size, "data.buckets": 3}
    train = config.train
    settings |= {
        "train.steps": train.steps,
        "train.warmup_steps": train.warmup_steps,
        "train.learning_rate_scale": train.learning_rate_scale,
        "train.tokens_per_batch": TOKENS_PER_BATCH,
        "train.seed": plan["seed"],
        "train.log_steps": max(1, min(20, train.steps // 6)),
        "train.valid_steps": train.steps,
        "train.valid_sentences": 0,  # perplexity alone; the BLEU of the finished model comes from `evaluate`
        "train.keep_checkpoints": 1,  # the last weights: Table 3 has no averages of checkpoints
        "train.average_checkpoints": 1,
        "train.export": "false",
    }
    return [*(f"{key}={value}" for key, value in settings.items()), *plan["set"]]


def evaluation(name, plan, workdir) -> list:
    """The command that translates and scores the validation set, from the second row on in comparison with base."""
    folder, other = workdir / name, None if name == "base" else workdir / "base" / "dev.txt"
    return evaluation_command(folder, *files(plan, "valid"), folder / "dev.txt", folder / "dev.json.partial", other)


def files(plan, split) -> list[str]:
    return [str(Path(plan["data"]) / f"{split}.{language}") for language in plan["languages"]]


def result(name, workdir) -> dict:
    """What `comparison.py` needs of a finished row."""
    folder = workdir / name
    scores, metadata = (json.loads((folder / file).read_text(encoding="utf-8")) for file in ("dev.json", "model.json"))
    if (folder / "tokenizer.model").read_bytes() != (workdir / "base" / "tokenizer.model").read_bytes():
        raise SystemExit(f"{folder} has a different tokenizer from base: their perplexities cannot be compared.")
    bleu = scores["scores"]["bleu"]
    difference = next((found for found in scores["differences"] if found["name"] == "BLEU"), None)
    return {
        "row": name,
        "perplexity": metadata["validation"]["last"]["perplexity"],
        "bleu": {key: bleu[key] for key in ("value", "interval", "signature")},
        "difference": difference
        and {"value": difference["difference"], "interval": difference["interval"], "p_value": difference["p_value"]},
        "parameters": metadata["parameters"],
    }
