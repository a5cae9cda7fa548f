import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast.panels import columns_together, to_panels
from tests.fast.kernels import D

COLUMNS = 8


@pytest.mark.parametrize("transposed", [False, True])
def test_a_panel_holds_columns_that_are_neighbours(rng, transposed):
    kernel = rng.normal(size=(D, 2 * COLUMNS))
    expected = np.stack([kernel[:, :COLUMNS], kernel[:, COLUMNS:]])
    cut = to_panels(tf.constant(kernel.T if transposed else kernel), transposed, COLUMNS, num_arrays=2)
    assert np.array_equal(tf.concat(cut, axis=0), expected)


@pytest.mark.parametrize("size", [1, COLUMNS, 3 * COLUMNS - 1, 3 * COLUMNS])
def test_products_with_panels_side_by_side_are_the_product_with_the_kernel(rng, size):
    rows, kernel = rng.normal(size=(3, D)), rng.normal(size=(D, size))
    [panels] = to_panels(tf.constant(kernel), False, COLUMNS, num_arrays=1)
    np.testing.assert_allclose(columns_together(tf.matmul(rows, panels), size), rows @ kernel)
