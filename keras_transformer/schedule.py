"""The learning rate, Section 5.3."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_transformer")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation 3: up linearly, down with the root.

    Keras counts its iterations from 0 and calls the schedule before the update, so the first update has step 1. Where
    the optimizer accumulates gradients, an iteration is a micro-batch, and `accumulation` of them make a step.

    Not in the paper: over the last `cooldown_steps` of `steps`, the rate is multiplied by a factor that falls linearly
    from 1 to 0. Small batches at a high rate learn fast but noisily, and the noise has to end.

    Args:
        d_model: width of the model.
        warmup_steps: the step of the highest rate.
        scale: factor on the whole.
        accumulation: the optimizer's `gradient_accumulation_steps`.
        steps: how many the whole training has; needed where there are `cooldown_steps`.
        cooldown_steps: how many of `steps`, the last ones, are the cooldown.
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0, accumulation=1, steps=None, cooldown_steps=0):
        positive = {"d_model": d_model, "warmup_steps": warmup_steps, "scale": scale, "accumulation": accumulation}
        if wrong := [f"{name}={value}" for name, value in positive.items() if value <= 0]:
            raise ValueError(f"`{'`, `'.join(positive)}` must be positive. Received: {', '.join(wrong)}.")
        if cooldown_steps and (steps is None or not 0 < cooldown_steps <= steps):
            raise ValueError(
                "`cooldown_steps` must be 0, or positive and at most `steps`. "
                f"Received: cooldown_steps={cooldown_steps}, steps={steps}."
            )
        self.d_model, self.warmup_steps, self.scale, self.accumulation = d_model, warmup_steps, scale, accumulation
        self.steps, self.cooldown_steps = steps, cooldown_steps

    def __call__(self, iteration, skipped=0):
        """The rate of an update. `skipped` steps of the training before it made none; the cooldown counts them."""
        step = ops.cast(ops.cast(iteration, "int64") // self.accumulation + 1, "float32")
        rate = self.scale * self.d_model**-0.5 * ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
        if not self.cooldown_steps:
            return rate
        left = self.steps + 1 - step - ops.cast(skipped, "float32")
        return rate * ops.clip(left / self.cooldown_steps, 0.0, 1.0)

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "accumulation": self.accumulation,
            "steps": self.steps,
            "cooldown_steps": self.cooldown_steps,
        }
