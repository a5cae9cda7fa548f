"""The variables of a run have the same names in every process, and all that a step changes are among them."""

import keras
import numpy as np
import pytest

from keras_transformer.training.variables import named_variables, set_weights
from tests.training.batches import random_batches
from tests.training.trainees import fit, make_trainee, values


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_every_variable_that_a_step_changes_has_a_name(optimizer):
    trainee = make_trainee(optimizer=optimizer)
    held = {id(variable) for variable in named_variables(trainee).values()}
    everything = [*trainee.transformer.variables, *trainee.ema, *trainee.optimizer.variables, *trainee.variables]
    apart = {v.path for v in everything if id(v) not in held}
    assert apart <= {f"{optimizer}/learning_rate"}, apart
    before = values(trainee)
    fit(trainee, random_batches(1))
    changed = {name for name, value in values(trainee).items() if not np.array_equal(value, before[name])}
    assert changed == set(before) - {"counter/num_skipped"}


def test_names_do_not_depend_on_what_else_the_process_has_made():
    names = list(named_variables(make_trainee()))
    keras.layers.Dropout(0.1), keras.random.SeedGenerator()
    assert list(named_variables(make_trainee())) == names


def test_weights_of_another_model_are_refused():
    trainee = make_trainee()
    weights = {v.path: v.numpy() for v in trainee.transformer.trainable_variables}
    first, *_ = weights
    for other in (
        {**weights, "one/more": np.zeros(3)},
        {path: value for path, value in weights.items() if path != first},
        {**weights, first: weights[first][:-1]},
    ):
        with pytest.raises(ValueError, match=f"Different: ({first}|one/more)"):
            set_weights(trainee.transformer, other)
