"""One export that all tests of the package look at."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from export import export_saved_model, saved_model
from keras_transformer import Transformer
from keras_transformer.tokenizer import EOS_ID
from keras_transformer.translator import Translator


@pytest.fixture(scope="session")
def finished_run(finished_run, tmp_path_factory):
    """The run with a model that ends sentences early, late and at the limit. Its own, of 14 steps, never ends one."""
    run = shutil.copytree(finished_run, tmp_path_factory.mktemp("finished") / "run")
    sizes = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=32, num_heads=2, tied_embeddings="none")
    model, rng = Transformer(Translator.load(run).model.vocab_size, **sizes), np.random.default_rng(10)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:
            scale = 1 if "embedding" in weight.path else 4 / weight.shape[0] ** 0.5
            weight.assign(rng.normal(0, scale, weight.shape))
    eos, shift = model.output_embedding.embeddings[EOS_ID], model.decoder[-1].feed_forward_norm.layer_norm.beta
    shift.assign(eos / tf.norm(eos))  # makes eos likelier everywhere
    model.save(run / "model.keras")
    return run


@pytest.fixture(scope="session")
def exported(finished_run, tmp_path_factory):
    """The directory of version 1."""
    return export_saved_model(finished_run, tmp_path_factory.mktemp("served") / "demo")


@pytest.fixture(scope="session")
def signatures(exported):
    loaded = tf.saved_model.load(str(exported))
    return _Signatures(loaded)


class _Signatures:
    """Keeps the loaded object alive as long as its functions."""

    def __init__(self, loaded):
        self._loaded = loaded

    def __getitem__(self, name):
        signature = self._loaded.signatures[name]
        return lambda **inputs: {key: value.numpy() for key, value in signature(**inputs).items()}

    def __iter__(self):
        return iter(self._loaded.signatures)


@pytest.fixture(scope="session")
def translator(finished_run):
    return Translator.load(finished_run)


@pytest.fixture
def quick(exported, monkeypatch):
    """Exports without tracing: what is written is a copy of `exported`, and the check is passed."""

    def copy(_, folder):
        shutil.copytree(exported, folder)

    monkeypatch.setattr(saved_model, "write", copy)
    monkeypatch.setattr(saved_model, "compare", lambda *_: None)


@pytest.fixture(scope="session")
def no_process():
    """The number of a process that has ended."""
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    return child
