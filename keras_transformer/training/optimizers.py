"""The optimizers of a run: the paper's Adam, and Muon (Jordan et al. 2024).

Keras composes an Adam update from ten operations, each of which reads and writes memory of the size of the weight.
TensorFlow has a single one that reads and writes each number once, in all threads; it computes the same.
"""

import keras
import tensorflow as tf

ADAM = dict(beta_1=0.9, beta_2=0.98, epsilon=1e-9)  # Section 5.3


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


@keras.saving.register_keras_serializable("keras_transformer")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` for weights in float32; without `amsgrad`."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if self.amsgrad:
            raise ValueError("`amsgrad` must be False: keras.optimizers.Adam has it. Received: amsgrad=True.")

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        moments = self._momentums[index], self._velocities[index]
        _apply_adam(self, variable, moments, gradient, learning_rate, self.beta_1, self.beta_2)


@keras.saving.register_keras_serializable("keras_transformer")
class Muon(keras.optimizers.Muon):
    """`keras.optimizers.Muon` for weights in float32.

    A kernel moves by about the orthogonal matrix that is nearest to its Nesterov momentum: as far in directions with
    small gradients as in those with large ones. Adam updates embeddings, biases and normalisations, in one operation.
    """

    def _adamw_update_step(self, gradient, variable, learning_rate, momentum, velocity):
        _apply_adam(self, variable, (momentum, velocity), gradient, learning_rate, self.adam_beta_1, self.adam_beta_2)


def _apply_adam(optimizer, variable, moments, gradient, learning_rate, beta_1, beta_2):
    step = tf.cast(optimizer.iterations.value + 1, tf.float32)
    momentum, velocity = moments
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=beta_1**step,
        beta2_power=beta_2**step,
        lr=tf.cast(learning_rate, tf.float32),
        beta1=beta_1,
        beta2=beta_2,
        epsilon=optimizer.epsilon,
        grad=gradient,
    )
