"""One export that all tests of the package look at."""

import os
import shutil

import pytest
import tensorflow as tf

from export import export_saved_model, saved_model
from keras_transformer.translator import Translator
from tests.small import ending_run


@pytest.fixture(scope="session")
def finished_run(finished_run, tmp_path_factory):
    return ending_run(finished_run, tmp_path_factory.mktemp("ending") / "run")


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
