import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast.panels import to_panels
from tests.fast.kernels import D

COLUMNS = 8


@pytest.mark.parametrize("transposed", [False, True])
def test_a_panel_holds_columns_that_are_neighbours(rng, transposed):
    kernel = rng.normal(size=(D, 2 * COLUMNS))
    expected = np.stack([kernel[:, :COLUMNS], kernel[:, COLUMNS:]])
    cut = to_panels(tf.constant(kernel.T if transposed else kernel), transposed, COLUMNS, num_arrays=2)
    assert np.array_equal(tf.concat(cut, axis=0), expected)
