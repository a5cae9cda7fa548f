"""Settings that make a GPU compute as a CPU does; without a GPU they do nothing.

Both are for the whole process, and for what it compiles and runs from then on.
"""

import tensorflow as tf


def multiply_in_float32():
    """float32 is multiplied as float32.

    TensorFlow would round it to the ten bits of TF32 before. NVIDIA_TF32_OVERRIDE=0 forbids that to NVIDIA's libraries,
    but not to the kernels that XLA makes itself.
    """
    if _is_there():
        tf.config.experimental.enable_tensor_float_32_execution(False)


def add_in_order():
    """What is added up by many threads is added up in the same order every time.

    Keras compiles no model by XLA then (`Trainee` does it itself), random operations want a seed, and tf.data makes
    nothing ahead of time that comes from Python.
    """
    if _is_there():
        tf.config.experimental.enable_op_determinism()


def _is_there():
    """Asked before TensorFlow takes its devices, which `xla.on_gpu` makes it do."""
    return bool(tf.config.get_visible_devices("GPU"))
