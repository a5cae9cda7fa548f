"""A short real run on real text, by a recipe."""

import json
import subprocess
import sys

import pytest

from keras_transformer import Transformer
from keras_transformer.evaluation import bleu
from keras_transformer.tokenizer import Tokenizers
from keras_transformer.training.journal import read_log
from keras_transformer.translator import Translator
from tests.integration.runs import ROOT

RECIPE = """\
preset = "tiny"

[data]
train = ["{folder}/train.en", "{folder}/train.de"]
valid = ["{folder}/valid.en", "{folder}/valid.de"]
test = ["{folder}/test2016.en", "{folder}/test2016.de"]
vocab_size = 4000
buckets = 4

[model]
dropout = 0.1

[train]
steps = 400
warmup_steps = 300
learning_rate_scale = 1.0
tokens_per_batch = 4096
checkpoint_steps = 40
average_checkpoints = 3
valid_steps = 400
valid_sentences = 100
"""


@pytest.mark.slow
def test_a_few_hundred_steps_on_multi30k_beat_an_untrained_model_by_far(shared_data, tmp_path):
    recipe, workdir = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(folder=shared_data / "multi30k"))
    command = [sys.executable, "train_keras.py", "--recipe", recipe, "--workdir", workdir]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    losses = [record["loss"] for record in read_log(workdir / "log.jsonl") if record["kind"] == "train"]
    assert losses[-1] < 0.7 * losses[0]
    trained = json.loads((workdir / "model.json").read_text())["test"]["bleu"]["value"]
    assert trained > 5 and trained > untrained_bleu(workdir, shared_data) + 5


def untrained_bleu(workdir, shared_data):
    tokenizers = Tokenizers.load(workdir)
    model = Transformer.from_preset("tiny", vocab_size=tokenizers.target.vocab_size)
    sources, references = (
        (shared_data / "multi30k" / f"test2016.{language}").read_text().split("\n")[:50] for language in ("en", "de")
    )
    return bleu(Translator(model, tokenizers).translate(sources), references)
