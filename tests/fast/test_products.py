import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast.products import LEFT_PARTS, LEFT_ROWS, left_product, use_products
from tests.fast.kernels import D, dense_and_vocabulary


@pytest.mark.parametrize("which", [0, 1], ids=["dense", "embedding"])
def test_a_layer_multiplies_by_its_product_inside_of_use_products_only(rng, which):
    layer, call = dense_and_vocabulary()[which]
    x = rng.normal(size=(1, 2, D)).astype("float32")
    expected = call(x)
    with use_products({layer: lambda rows: tf.ones((rows.shape[0], 71))}):
        np.testing.assert_array_equal(call(x), tf.ones((1, 2, 71)) + (0.0 if which else layer.bias))
    other, _ = dense_and_vocabulary()[1 - which]
    with use_products({other: lambda rows: tf.ones((rows.shape[0], 71))}):
        np.testing.assert_array_equal(call(x), expected)
    np.testing.assert_array_equal(call(x), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("rows", [1, LEFT_ROWS, LEFT_ROWS + 1])
@pytest.mark.parametrize("size", [LEFT_PARTS * 9, LEFT_PARTS * 9 + 1])
def test_a_kernel_on_the_left_gives_the_same_product(rng, rows, size, compiled):
    x, kernel = rng.normal(size=(rows, D)), rng.normal(size=(size, D))
    product = tf.function(lambda x, kernel: left_product(kernel)(x), jit_compile=compiled, autograph=False)
    np.testing.assert_allclose(product(tf.constant(x), tf.constant(kernel)), x @ kernel.T)
