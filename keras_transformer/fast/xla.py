"""Operations rewritten so that XLA compiles them to faster code, for layers, losses and decoding."""

import functools

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

PARTS = 16  # of a vocabulary, whose exponentials are added number by number
LOOP = 32  # up to so many numbers XLA reduces in a plain loop, more in a tree that reads each window number by number


def by_xla_on_cpu():
    """Whether XLA will compile what is traced here, for a CPU. What a GPU would gain or lose was not measured."""
    return _by_xla() and not on_gpu()


def by_operations_on_cpu():
    """Whether TensorFlow will run what is traced here operation by operation, on a CPU."""
    return not (_by_xla() or on_gpu())


def _by_xla():
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def on_gpu():
    """Whether there is a GPU; then everything that can run there does."""
    return bool(tf.config.list_logical_devices("GPU"))


def barrier(x):
    """`x`, which XLA then computes as written and does not fuse with what reads it. Without XLA this does nothing."""
    return optimization_barrier(x)[0] if _by_xla() else x


@tf.RegisterGradient("XlaOptimizationBarrier")
def _of_barrier(_, *dy):
    """Passes the gradient through."""
    return dy


def block_size(size):
    """The width of blocks whose maxima are cheap to find; a divisor of `size` where one is near `LOOP`."""
    return next((width for width in range(LOOP, LOOP // 2 - 1, -1) if size % width == 0), LOOP)


def log_sum_exp(logits, maxima=None):
    """`tf.reduce_logsumexp` over the last axis. `maxima` are the maxima of its blocks, where these are known already.

    On a CPU, XLA would write all exponentials to memory and read them again for their sum. Here the row is cut into
    `PARTS` equal parts, and XLA adds these up in the same loop that makes the exponentials, so it writes a sixteenth
    of the numbers. Only one operation may read that sum: if two do, XLA again writes all exponentials.
    """
    size = logits.shape[-1] or 0
    if not by_xla_on_cpu() or size < PARTS:
        return tf.reduce_logsumexp(logits, axis=-1)
    maximum = tf.reduce_max(logits, axis=-1) if maxima is None else _maximum(maxima)
    maximum = tf.stop_gradient(tf.where(tf.math.is_finite(maximum), maximum, 0.0))
    *parts, rest = (tf.exp(x - maximum[..., None]) for x in _parts(logits))
    total = tf.reduce_sum(tf.add_n(parts), axis=-1) + tf.reduce_sum(rest, axis=-1)
    return maximum + tf.math.log(total)


def subtract_at(x, ids, y):
    """Subtracts `y` from the numbers of `x` that `ids` name. (..., V), (...), (...) -> (..., V)

    On a GPU it subtracts from all numbers, 0 from most. Where a GPU has to be deterministic, XLA would make a scatter
    one number after the other, and TensorFlow would make it on the CPU.
    """
    num_ids = tf.shape(x)[-1]
    if on_gpu():
        return x - tf.where(tf.range(num_ids) == ids[..., None], y[..., None], tf.zeros((), y.dtype))
    places = tf.stack([tf.range(tf.size(ids)), tf.reshape(ids, (-1,))], axis=1)
    rows = tf.tensor_scatter_nd_sub(tf.reshape(x, (-1, num_ids)), places, tf.reshape(y, (-1,)))
    return tf.reshape(rows, tf.shape(x))


def in_blocks(x, block):
    """(..., V) -> (..., V / block, block)"""
    leading = [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(x.shape[:-1])]
    return tf.reshape(x, (*leading, x.shape[-1] // block, block))


def _maximum(x):
    """The maximum over the last axis. While that is wide, its parts are first compared with each other."""
    if x.shape[-1] <= LOOP:
        return tf.reduce_max(x, axis=-1)
    *parts, rest = _parts(x)
    return tf.maximum(_maximum(functools.reduce(tf.maximum, parts)), tf.reduce_max(rest, axis=-1))


def _parts(x):
    """The last axis in `PARTS` equal parts and what is left over."""
    return tf.split(x, [*[x.shape[-1] // PARTS] * PARTS, -1], axis=-1)
