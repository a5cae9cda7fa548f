"""Dropout, Section 5.4, whose mask is a hash of each element's position.

Keras draws a number from a counter-based generator for every element, which takes up to a third of a training step of
a small model. A mask needs less: bits that differ from place to place, from step to step and from layer to layer as if
by chance. A hash of place and seed gives them in a few integer operations, which XLA fuses with the computation of the
elements.
"""

import keras
import tensorflow as tf

APART = 0x9E3779B9  # how far apart the seeds of two replicas are, in calls: more than any run makes


def random_bits(shape, seed):
    """32 pseudo-random bits for every place. (2,) uint32 -> uint32 of the shape

    The mixer is "lowbias32" (C. Wellons, "Prospecting for Hash Functions", 2018): multiply, fold the high bits down.
    Two words that are themselves hashes of the seed go in, so that equal places of two steps have nothing in common.
    """
    word = _mix(seed[0] ^ _mix(seed[1]))
    places = tf.bitcast(tf.reshape(tf.range(tf.reduce_prod(shape)), shape), tf.uint32)
    return _mix(places ^ word, _mix(word + 1))


def _mix(x, between=0):
    x = _fold(x, 16) * tf.constant(0x7FEB352D, tf.uint32)
    x = _fold(x ^ tf.cast(between, tf.uint32), 15) * tf.constant(0x846CA68B, tf.uint32)
    return _fold(x, 16)


def _fold(x, bits):
    return x ^ tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32))


def _replica():
    """The number of the replica that this is traced for; 0 without a strategy."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(tf.convert_to_tensor(context.replica_id_in_sync_group))) if context else 0


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Dropout):
    """Sets a share `rate` of the elements to 0 in training, different ones on every replica, and scales up the rest.

    Args:
        rate: the share.
    """

    def __init__(self, rate, noise_shape=None, seed=None, **kwargs):
        if noise_shape is not None:
            raise ValueError(f"`noise_shape` must be None: elements drop independently. Received: {noise_shape=}.")
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be at least 0 and less than 1. Received: {rate=}.")
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        seed = tf.add(tf.cast(self.seed_generator.next(), tf.uint32), [0, _replica() * APART % 2**32])
        bits = random_bits(tf.shape(inputs), seed)
        keep = bits >= tf.constant(round(self.rate * 2**32), tf.uint32)
        return tf.where(keep, inputs / (1.0 - self.rate), tf.zeros_like(inputs))
