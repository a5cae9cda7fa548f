"""The dense layer and the layer normalisation do what Keras's do, in fewer operations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.dense import Dense, LayerNormalization, leading_shape

PAIRS = {
    "dense": (lambda kind, **k: kind(7, **k), Dense, keras.layers.Dense),
    "relu": (lambda kind, **k: kind(7, activation="relu", **k), Dense, keras.layers.Dense),
    "no bias": (lambda kind, **k: kind(7, use_bias=False, **k), Dense, keras.layers.Dense),
    "layer normalisation": (
        lambda kind, **k: kind(epsilon=1e-6, **k),
        LayerNormalization,
        keras.layers.LayerNormalization,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5), (2, 1, 3, 5)])
@pytest.mark.parametrize("name", PAIRS)
def test_it_equals_the_layer_of_keras(name, shape, dtype):
    make, ours, theirs = PAIRS[name]
    x = np.random.default_rng(3).normal(2.0, 3.0, shape).astype("float64" if dtype == "float64" else "float32")
    layers = [make(kind, dtype=dtype) for kind in (ours, theirs)]
    for layer in layers:
        layer.build(shape)
    values = [np.random.default_rng(4).normal(size=v.shape) for v in layers[0].weights]
    outputs = []
    for layer in layers:
        layer.set_weights(values)
        outputs.append(layer(x))
    assert outputs[0].dtype == outputs[1].dtype and outputs[0].shape == outputs[1].shape
    tolerance = 5e-2 if dtype == "mixed_bfloat16" else 1e-5
    np.testing.assert_allclose(*(np.asarray(tf.cast(y, "float64")) for y in outputs), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("training", [False, True])
def test_a_normalisation_in_bfloat16_computes_in_float32_and_rounds_once(training):
    random = np.random.default_rng(3)
    x = tf.cast(random.normal(2.0, 3.0, (7, 3, 31)), "bfloat16")
    values, outputs = random.normal(1.0, 0.1, (2, 31)), []
    for dtype in ("mixed_bfloat16", "float32"):
        layer = LayerNormalization(epsilon=1e-6, dtype=dtype)
        layer.build(x.shape)
        layer.set_weights(values)
        outputs.append(layer(tf.cast(x, layer.compute_dtype), training=training))
    assert [y.dtype.name for y in outputs] == ["bfloat16", "float32"]
    np.testing.assert_array_equal(*(np.asarray(tf.cast(tf.cast(y, "bfloat16"), "float32")) for y in outputs))


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 5), (2, 3, 9)])
@pytest.mark.parametrize("name", PAIRS)
def test_its_gradients_in_training_equal_those_of_keras(name, shape, dtype, xla):
    make, ours, theirs = PAIRS[name]
    dtype_of_x = "float64" if dtype == "float64" else "float32"
    random = np.random.default_rng(3)
    x, weights = (tf.constant(random.normal(size=size), dtype_of_x) for size in (shape, (*shape[:-1], 7)))
    weights = x[..., ::-1] if name == "layer normalisation" else weights
    gradients = []
    for kind in (ours, theirs):
        layer = make(kind, dtype=dtype)
        layer.build(shape)
        layer.set_weights([np.random.default_rng(4).normal(size=v.shape) for v in layer.weights])
        variables = [v.value for v in layer.trainable_variables]

        @tf.function(jit_compile=xla, autograph=False)
        def gradients_of(x, layer=layer, variables=variables):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, training=True) if layer.__class__ in (Dense, LayerNormalization) else layer(x)
                loss = tf.reduce_sum(tf.cast(y, dtype_of_x) * weights)
            return tape.gradient(loss, [x, *variables])

        gradients.append(gradients_of(x))
    tolerance = {"float64": 1e-12, "float32": 1e-5}.get(dtype, 5e-2)
    for got, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", PAIRS)
def test_it_takes_fewer_operations_than_the_layer_of_keras(name):
    make, ours, theirs = PAIRS[name]

    def operations(layer):
        layer.build((None, None, 5))
        function = tf.function(layer, autograph=False, input_signature=[tf.TensorSpec((None, 4, 5))])
        return len([op for op in function.get_concrete_function().graph.get_operations() if op.type != "Const"])

    assert operations(make(ours)) < operations(make(theirs))


def test_a_shape_is_numbers_as_far_as_it_is_known():
    shapes = []

    @tf.function(
        autograph=False, input_signature=[tf.TensorSpec(s) for s in [(2, 3, 5), (None, 3, 5), (None, None, 5)]]
    )
    def look(*tensors):
        shapes.extend(leading_shape(x) for x in tensors)
        return [tf.reshape(x, (*leading_shape(x), 5)) for x in tensors]

    look.get_concrete_function()
    assert shapes[:2] == [[2, 3], [-1, 3]] and all(tf.is_tensor(size) for size in shapes[2])


def test_a_saved_layer_is_loaded_again():
    for make, ours, _ in PAIRS.values():
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(make(ours)))
        assert type(again) is ours


@pytest.mark.parametrize("other", [{"axis": 1}, {"center": False}, {"scale": False}])
def test_a_normalisation_of_another_kind_is_refused(other):
    with pytest.raises(ValueError, match="must have axis=-1, center and scale"):
        LayerNormalization(**other)
