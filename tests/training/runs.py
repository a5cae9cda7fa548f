"""Small runs in the process of the test."""

from keras_transformer import load_recipe
from keras_transformer.training.run import Run
from keras_transformer.training.strategy import make_strategy
from tests.integration.runs import SETTINGS


def configuration(**changes):
    settings = {**SETTINGS, "train.steps": 8, "train.checkpoint_steps": 4, **changes}
    return load_recipe(None, [f"{key}={value}" for key, value in settings.items()])


def new_run(config, workdir):
    return Run(config, workdir, make_strategy(config.train.strategy))
