"""Embeddings and positions, Sections 3.4 and 3.5. Everything is float32 until the two are added."""

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.fast.products import product
from keras_transformer.layers.dense import leading_shape


def sinusoidal_positions(positions, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same, Section 3.5. (T,) -> (T, D)

    The angles are taken in float64: in float32 those of position 5,000 are wrong in the fourth digit.
    """
    if d_model < 2 or d_model % 2:
        raise ValueError(f"`d_model` must be even for sinusoids. Received: {d_model}.")
    pairs = ops.arange(0, d_model, 2, dtype="float64") / d_model  # 2i / d_model
    angles = ops.cast(positions, "float64")[:, None] * ops.power(ops.cast(10000.0, "float64"), -pairs)  # (T, D/2)
    interleaved = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (T, D/2, 2)
    return ops.cast(ops.reshape(interleaved, (-1, d_model)), "float32")


@keras.saving.register_keras_serializable("keras_transformer")
class TokenEmbedding(keras.layers.Layer):
    """Embeds ids, times sqrt(d_model); the same matrix can be the pre-softmax transformation, Section 3.4.

    Args:
        vocab_size: number of rows.
        d_model: width of a vector.
    """

    is_transposed = True  # the kernel of the pre-softmax transformation is (V, D)

    def __init__(self, vocab_size, d_model, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # ids that come as floats keep their digits under mixed precision
        self.vocab_size, self.d_model = vocab_size, d_model

    def build(self, ids_shape=None):
        self.embeddings = self.add_weight(
            shape=(self.vocab_size, self.d_model),
            # This scale suits both uses: the input, with the factor sqrt(d_model), and the logits.
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            name="embeddings",
            autocast=False,  # float32 under mixed precision too
        )

    def call(self, ids):
        """(B, T) -> (B, T, D), in the dtype of the weights"""
        ids = ops.cast(ids, "int32")  # Keras makes floats of them when it builds metrics under `tf.distribute`
        return ops.take(self.embeddings, ids, axis=0) * self.d_model**0.5

    def logits(self, x):
        """The scores of all ids, in float32 or more. (B, T, D) -> (B, T, V)"""
        if not self.built:
            self.build()
        x = ops.cast(x, self.compute_dtype)
        y = product(self, tf.reshape(x, (-1, self.d_model)))
        logits = tf.reshape(y, (*leading_shape(x), self.vocab_size))
        return ops.cast(logits, keras.backend.result_type(x.dtype, "float32"))

    @property
    def kernel(self):
        """The variable of the pre-softmax transformation. (V, D)"""
        return self.embeddings

    def cast_kernel(self):
        """The kernel in the dtype of the products."""
        return ops.cast(self.embeddings, self.compute_dtype)

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def compute_output_spec(self, ids):
        return keras.KerasTensor(self.compute_output_shape(ids.shape), dtype=self.variable_dtype)

    def get_config(self):
        return {**super().get_config(), "vocab_size": self.vocab_size, "d_model": self.d_model}


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(keras.layers.Layer):
    """A trained vector for each position, row (E) of Table 3. Positions beyond the table are an error.

    Args:
        max_positions: number of positions, from 0.
        d_model: width of a vector.
    """

    def __init__(self, max_positions, d_model, **kwargs):
        super().__init__(**kwargs)
        self.max_positions, self.d_model = max_positions, d_model

    def build(self, positions_shape=None):
        self.table = self.add_weight(
            shape=(self.max_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            name="table",
            autocast=False,  # float32 under mixed precision too
        )

    def call(self, positions):
        """(..., T) -> (..., T, D), in the dtype of the weights"""
        positions = ops.cast(positions, "int32")
        expected = f"Learned positions end at {self.max_positions} (`max_positions`)"
        length = positions.shape[-1]
        if length is not None and length > self.max_positions:
            raise ValueError(f"{expected}. Received: a sequence of {length} positions.")
        within = tf.debugging.assert_less(
            positions, self.max_positions, message=f"{expected}. Received a longer sequence."
        )
        with tf.control_dependencies([within] if within is not None else []):
            vectors = ops.take(self.table, positions, axis=0)
        # XLA drops assertions: there a position beyond the table gives NaN, and not the table's last row.
        return ops.where(ops.less(positions, self.max_positions)[..., None], vectors, float("nan"))

    def compute_output_shape(self, positions_shape):
        return (*positions_shape, self.d_model)

    def compute_output_spec(self, positions):
        return keras.KerasTensor(self.compute_output_shape(positions.shape), dtype=self.variable_dtype)

    def get_config(self):
        return {**super().get_config(), "max_positions": self.max_positions, "d_model": self.d_model}
