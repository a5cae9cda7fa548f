"""Fixtures of all tests."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import random
import signal
from pathlib import Path

from keras_transformer.gpu import multiply_in_float32

# Afterwards TensorFlow, which keras_transformer lets use oneDNN.
# isort: split
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism

from tests.devices import part

# A shell starts background jobs with SIGINT ignored, and processes pass that on: no test of Ctrl-C would pass.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONG = "integration/", "training/", "test_inference", "test_translator", "test_module"  # files of tests


def pytest_addoption(parser):
    parser.addoption("--gpu", action="store_true", help="on the first GPU, what is not for CPUs alone; else on the CPU")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads it
def pytest_cmdline_main(config):
    """A process a core where nobody says otherwise, at most four, for each may take 7 GB; one for a file or a GPU."""
    is_worker, one_file = hasattr(config, "workerinput"), len(config.args) == 1 and ".py" in config.args[0]
    undecided = config.getoption("numprocesses", 1) is None  # 1: pytest-xdist is not there
    if undecided and not (is_worker or one_file or config.getoption("gpu")):
        dealt = dict(dist="loadfile", loadscopereorder=False)  # files have fixtures; in the order of the items
        vars(config.option).update(numprocesses="auto", maxprocesses=4, **dealt)


def pytest_configure(config):
    """Says which devices there are, before TensorFlow looks; the processes that tests start are told with it."""
    if config.getoption("gpu"):
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        if not tf.config.list_physical_devices("GPU"):
            raise pytest.UsageError("--gpu: TensorFlow finds no GPU here.")
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # for tests that start processes
        multiply_in_float32()  # as where there is a run or a translator
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        tf.config.set_visible_devices([], "GPU")  # of other makers
    part()


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):  # those that take minutes first, so that no process works alone at the end
        items.sort(key=lambda item: not any(part in item.nodeid for part in LONG))
    marker, reason = ("cpu", "is for CPUs") if config.getoption("gpu") else ("gpu", "needs a GPU: pytest --gpu")
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def seeds():
    """Every test starts from the same random numbers, alone or in company.

    Keras draws the seeds of initialisers and dropout from Python's `random`. `keras.utils.set_random_seed` would do,
    but it destroys the SentencePiece tokenizers that fixtures keep alive.
    """
    random.seed(1706)
    np.random.seed(3762)


@pytest.fixture(autouse=True)
def default_order():
    """What a run has said with `train.deterministic` is forgotten."""
    yield
    disable_op_determinism()


@pytest.fixture
def gpus(monkeypatch):
    """The list of GPUs that are to be seen. TensorFlow is as it comes."""
    gpus, before = [], tf.config.experimental.tensor_float_32_execution_enabled()
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: gpus)
    disable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(True)
    yield gpus
    tf.config.experimental.enable_tensor_float_32_execution(before)


@pytest.fixture
def rng():
    return np.random.default_rng(1706_03762)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real corpora, which are not part of this repository."""
    folder = Path(os.environ.get("KERAS_TRANSFORMER_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real corpora: {folder} is missing; KERAS_TRANSFORMER_DATA may name another folder")
    return folder


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """The workdir of a short real run: a small model, the demo corpus."""
    from keras_transformer import load_recipe
    from keras_transformer.training.trainer import train
    from tests.integration.runs import SETTINGS

    workdir = tmp_path_factory.mktemp("finished") / "run"
    settings = {**SETTINGS, "train.steps": 14, "train.valid_steps": 7, "decode.extra_length": 5}
    settings |= {"data.train": "demo", "data.max_pairs": 300}
    result = train(load_recipe(None, [f"{key}={value}" for key, value in settings.items()]), workdir)
    assert result.exit_code == 0
    return workdir
