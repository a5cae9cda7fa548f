"""What XLA on a CPU is told in another way because it makes that faster: for layers, losses and decoding."""

import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

PARTS = 16  # of a vocabulary, whose exponentials are added number by number


def by_xla_on_cpu():
    """Whether XLA will compile what is traced here, for a CPU. What a GPU would gain or lose was not measured."""
    in_xla = GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    return in_xla and not tf.config.list_logical_devices("GPU")


def log_sum_exp(logits):
    """`tf.reduce_logsumexp` over the last axis.

    XLA on a CPU would write all exponentials down, and then read them for their sum. The sum of equal parts it makes
    together with the exponentials, so that only a sixteenth is written.
    """
    width = (logits.shape[-1] or 0) // PARTS
    if not by_xla_on_cpu() or not width:
        return tf.reduce_logsumexp(logits, axis=-1)
    maximum = tf.reduce_max(logits, axis=-1, keepdims=True)
    maximum = tf.stop_gradient(tf.where(tf.math.is_finite(maximum), maximum, 0.0))
    *parts, rest = (tf.exp(x - maximum) for x in tf.split(logits, [*[width] * PARTS, -1], axis=-1))
    total = tf.reduce_sum(tf.add_n(parts), axis=-1) + tf.reduce_sum(rest, axis=-1)
    return tf.squeeze(maximum, -1) + tf.math.log(total)
