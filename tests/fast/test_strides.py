import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast.strides import GAP, REGULAR, WIDEST, gap, with_gap, without_gap


@pytest.mark.parametrize(
    "columns, missing", [(1, 0), (REGULAR - 1, 0), (REGULAR, GAP), (384, 0), (WIDEST, GAP), (WIDEST + 256, 0)]
)
def test_only_rows_that_are_too_regular_get_zeros_at_their_ends(rng, columns, missing):
    x = rng.normal(size=(3, columns)).astype("float32")
    y = with_gap(tf.constant(x))
    assert gap(columns) == missing
    np.testing.assert_array_equal(y, np.pad(x, [(0, 0), (0, missing)]))
    np.testing.assert_array_equal(without_gap(y, columns), x)


def test_a_gap_is_not_regular_itself():
    assert all((columns + gap(columns)) % REGULAR for columns in range(1, WIDEST + 1))
