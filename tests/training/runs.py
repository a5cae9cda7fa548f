"""Small runs, and what is trained in them, in the process of the test."""

import keras

from keras_transformer import TrainConfig, Transformer, load_recipe
from keras_transformer.training.run import Run
from keras_transformer.training.step import Trainee
from keras_transformer.training.strategy import make_strategy
from keras_transformer.training.variables import named_variables
from tests.integration.runs import SETTINGS
from tests.training.batches import dataset


def configuration(**changes):
    settings = {**SETTINGS, "train.steps": 8, "train.checkpoint_steps": 4, **changes}
    return load_recipe(None, [f"{key}={value}" for key, value in settings.items()])


def new_run(config, workdir):
    return Run(config, workdir, make_strategy(config.train.strategy))


def make_trainee(seed=3, **train):
    keras.utils.set_random_seed(seed)
    model = Transformer(
        53, d_model=16, d_ff=31, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, name="transformer"
    )
    return Trainee(model, TrainConfig(ema_decay=0.9, xla=False, **train))


def values(trainee):
    return {name: variable.numpy() for name, variable in named_variables(trainee).items()}


def fit(trainee, batches):
    trainee.fit(dataset(batches), steps_per_epoch=len(batches), shuffle=False, verbose=0)
