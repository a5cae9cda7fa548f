"""The optimizers of a run: the paper's Adam, and Muon (Jordan et al. 2024).

Keras composes an Adam update from ten operations, each of which reads and writes memory of the size of the weight.
TensorFlow has a single one that reads and writes each number once, in all threads; it computes the same.

    with one_update(optimizer):
        for variable, gradient in ...:
            optimizer.update_step(gradient, variable, learning_rate)
"""

import contextlib
import contextvars
import types

import keras
import tensorflow as tf

ADAM = dict(beta_1=0.9, beta_2=0.98, epsilon=1e-9)  # Section 5.3

_shared_powers = contextvars.ContextVar("shared_powers", default=types.MappingProxyType({}))  # by optimizer


def make_optimizer(name, schedule):
    """The optimizer that `TrainConfig.optimizer` names, with the learning rates of `schedule`."""
    if name == "adam":
        return FusedAdam(schedule, **ADAM, name="adam")
    return Muon(
        schedule,
        adam_beta_1=ADAM["beta_1"],
        adam_beta_2=ADAM["beta_2"],
        epsilon=ADAM["epsilon"],
        weight_decay=None,
        adam_weight_decay=None,
        exclude_layers=["positions/", "/score_vector"],  # tables of vectors, like embeddings; Keras excludes these
        name="muon",
    )


@contextlib.contextmanager
def one_update(optimizer):
    """A context in which all weights share beta^t. Outside of it each weight makes its own by four small operations.

    On a GPU 724 of about 1,200 kernels of an update were these (docs/log.md).
    """
    token = _shared_powers.set({optimizer: _powers(optimizer)})
    try:
        yield
    finally:
        _shared_powers.reset(token)


@keras.saving.register_keras_serializable("keras_transformer")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` for weights in float32; without `amsgrad`."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if self.amsgrad:
            raise ValueError("`amsgrad` must be False: keras.optimizers.Adam has it. Received: amsgrad=True.")

    @property
    def _betas(self):
        return self.beta_1, self.beta_2

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        _apply_adam(self, variable, self._momentums[index], self._velocities[index], gradient, learning_rate)


@keras.saving.register_keras_serializable("keras_transformer")
class Muon(keras.optimizers.Muon):
    """`keras.optimizers.Muon` for weights in float32.

    A kernel moves by about the orthogonal matrix that is nearest to its Nesterov momentum: as far in directions with
    small gradients as in those with large ones. Adam updates embeddings, biases and normalisations, in one operation.
    """

    @property
    def _betas(self):
        return self.adam_beta_1, self.adam_beta_2

    def _adamw_update_step(self, gradient, variable, learning_rate, momentum, velocity):
        _apply_adam(self, variable, momentum, velocity, gradient, learning_rate)


def _powers(optimizer):
    """beta_1^t and beta_2^t, t counted from 1"""
    step = tf.cast(keras.ops.convert_to_tensor(optimizer.iterations) + 1, tf.float32)
    return [beta**step for beta in optimizer._betas]


def _apply_adam(optimizer, variable, momentum, velocity, gradient, learning_rate):
    (beta_1, beta_2), (power_1, power_2) = optimizer._betas, _shared_powers.get().get(optimizer) or _powers(optimizer)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=power_1,
        beta2_power=power_2,
        lr=tf.cast(learning_rate, tf.float32),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=optimizer.epsilon,
        grad=gradient,
    )
