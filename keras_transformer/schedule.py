"""The learning rate, Section 5.3."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_transformer")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation 3: up linearly, down with the root.

    Keras counts its iterations from 0 and calls the schedule before the update, so the first update has step 1. Where
    the optimizer accumulates gradients, an iteration is a micro-batch, and `accumulation` of them make a step.

    Args:
        d_model: width of the model.
        warmup_steps: the step of the highest rate.
        scale: factor on the whole.
        accumulation: the optimizer's `gradient_accumulation_steps`.
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0, accumulation=1):
        self.d_model, self.warmup_steps, self.scale, self.accumulation = d_model, warmup_steps, scale, accumulation

    def __call__(self, iteration):
        step = ops.cast(ops.cast(iteration, "int64") // self.accumulation + 1, "float32")
        return self.scale * self.d_model**-0.5 * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)

    @property
    def peak(self):
        """The highest rate, at step `warmup_steps`."""
        return self.scale * (self.d_model * self.warmup_steps) ** -0.5

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "accumulation": self.accumulation,
        }
