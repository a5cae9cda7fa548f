"""Small random batches with uneven lengths, in the shape of `keras_transformer.data.batches`."""

import numpy as np
import tensorflow as tf

from keras_transformer.data.batches import ELEMENT_SPEC, Batch, Inputs


def random_batches(number, rows=8, source_length=7, target_length=5, vocab_size=53, seed=0):
    rng = np.random.default_rng(seed)
    return [_random_batch(rng, rows, source_length, target_length, vocab_size) for _ in range(number)]


def _random_batch(rng, rows, source_length, target_length, vocab_size):
    source = rng.integers(4, vocab_size, (rows, source_length)).astype(np.int32)
    labels = rng.integers(4, vocab_size, (rows, target_length)).astype(np.int32)
    for row in range(rows):
        source[row, rng.integers(1, source_length + 1) :] = 0
        labels[row, rng.integers(1, target_length + 1) :] = 0
    shifted = np.concatenate([np.full((rows, 1), 2, np.int32), labels[:, :-1]], axis=1)
    return Batch(Inputs(source, shifted), labels, (labels != 0).astype(np.float32))


def dataset(batches):
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=ELEMENT_SPEC)
