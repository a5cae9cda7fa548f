import numpy as np
import pytest

from keras_transformer.layers.masks import PAD_ID, causal_mask, neighbourhood_mask, padding_mask


def test_padding_is_hidden_from_every_query():
    ids = np.array([[5, 3, PAD_ID], [7, PAD_ID, PAD_ID]])
    assert np.array_equal(padding_mask(ids), [[[True, True, False]], [[True, False, False]]])


@pytest.mark.parametrize("length", [1, 7])
def test_a_position_sees_itself_and_the_past(length):
    expected = [[[key <= query for key in range(length)] for query in range(length)]]
    assert np.array_equal(causal_mask(length), expected)


@pytest.mark.parametrize(("size", "reach"), [(1, 0), (2, 1), (3, 1), (5, 2), (101, 50)])
def test_a_neighbourhood_reaches_equally_far_to_both_sides(size, reach):
    queries, keys = np.array([0, 3, 6, 10]), np.arange(13)
    expected = [[[abs(query - key) <= reach for key in keys] for query in queries]]
    assert np.array_equal(neighbourhood_mask(queries, keys, size), expected)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_an_odd_neighbourhood_has_its_size(size):
    assert np.asarray(neighbourhood_mask(np.array([7]), np.arange(17), size)).sum() == size
