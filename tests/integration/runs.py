"""Real runs of train_keras.py on a few sentences, for the tests that kill them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = 48
SETTINGS = {
    "preset": "demo",
    "data.train": str(Path(__file__).with_name("pairs.tsv")),  # 300 of the demo's, without its 2,000 of valid and test
    "data.vocab_size": 300,
    "data.buckets": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.dropout": 0.3,
    "train.steps": STEPS,
    "train.tokens_per_batch": 512,
    "train.accumulation": 2,
    "train.ema_decay": 0.9,
    "train.checkpoint_steps": 7,
    "train.keep_checkpoints": 3,
    "train.average_checkpoints": 3,
    "train.log_steps": 5,
    "train.valid_steps": 24,
    "train.valid_sentences": 3,
    "train.xla": "false",
    "train.deterministic": "true",
    "train.export": "false",
    "decode.extra_length": 3,
}


def command(workdir, **changes):
    settings = {**SETTINGS, **changes}
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return [sys.executable, "train_keras.py", "--workdir", workdir, *options]


def start(workdir, **changes):
    arguments = command(workdir, **changes)
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(workdir, **changes):
    """Runs to the end of the process -> exit code, everything that it said."""
    process = start(workdir, **changes)
    said, _ = process.communicate(timeout=300)
    return process.returncode, said
