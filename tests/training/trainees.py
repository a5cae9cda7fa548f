"""A small model that is trained, and what it is made of."""

import keras

from keras_transformer import TrainConfig, Transformer
from keras_transformer.training.step import Trainee
from keras_transformer.training.variables import named_variables
from tests.training.batches import dataset


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
