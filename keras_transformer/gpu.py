"""Settings that make a GPU compute as a CPU does; without a GPU they do nothing.

Both are for the whole process, and for what it compiles and runs from then on.
"""

import tensorflow as tf


def multiply_in_float32():
    """Turns TF32 off: float32 is multiplied as float32.

    Otherwise TensorFlow rounds it to the ten bits of TF32 first. NVIDIA_TF32_OVERRIDE=0 forbids that to NVIDIA's
    libraries, but not to the kernels that XLA makes itself.
    """
    if _is_there():
        tf.config.experimental.enable_tensor_float_32_execution(False)


def add_in_order():
    """Makes sums by many threads add up in the same order every time.

    Keras then compiles no model by XLA (`Trainee` does so itself), random operations need a seed, and tf.data makes
    nothing ahead of time that comes from Python.
    """
    if _is_there():
        tf.config.experimental.enable_op_determinism()


def _is_there():
    """Whether there is a GPU. Unlike `xla.on_gpu`, this does not make TensorFlow take its devices yet."""
    return bool(tf.config.get_visible_devices("GPU"))
