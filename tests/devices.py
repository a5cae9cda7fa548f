"""The devices of the tests: one CPU in two parts, or with `pytest --gpu` the first GPU."""

import tensorflow as tf

MEMORY = 4096  # MiB of a part of a GPU


def part():
    """Two replicas on one device, for the tests of tf.distribute. To be called before TensorFlow looks at devices."""
    gpus = tf.config.get_visible_devices("GPU")
    [device, *_] = gpus or tf.config.list_physical_devices("CPU")
    half = tf.config.LogicalDeviceConfiguration(memory_limit=MEMORY if gpus else None)
    tf.config.set_logical_device_configuration(device, [half] * 2)
