"""Adam, Section 5.3, with the update of a weight as one operation.

Keras composes the update of ten operations, each of which reads and writes memory of the size of the weight. TensorFlow
has one that reads and writes each number once, in all threads; it computes the same.
"""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("keras_transformer")
class FusedAdam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` for weights in float32; without `amsgrad`."""

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations.value + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=tf.cast(learning_rate, tf.float32),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )
