import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers import panels
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.layers.panels import (
    COLUMNS,
    FEW_ROWS,
    GRAPH_COLUMNS,
    GRAPH_FEW_ROWS,
    panel_product,
    to_panels,
    use_panels,
)

D = 24
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])


@COMPILED
@pytest.mark.parametrize("size", [1, COLUMNS - 1, COLUMNS, 3 * COLUMNS, 3 * COLUMNS + 5])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_product_with_panels_is_the_product_with_the_kernel(rng, size, transposed, compiled):
    rows, kernel = rng.normal(size=(4, D)), rng.normal(size=(D, size))

    @tf.function(jit_compile=compiled, autograph=False)
    def product(rows, kernel):
        cut = to_panels(kernel, transposed)
        assert sum(part.shape[0] for part in cut) == -(-size // COLUMNS)
        assert {part.shape[1:] for part in cut} == {(D, COLUMNS)}
        return panel_product(rows, cut, size)

    found = product(tf.constant(rows), tf.constant(kernel.T if transposed else kernel))
    np.testing.assert_allclose(found, rows @ kernel)


def test_a_panel_holds_columns_that_are_neighbours(rng):
    kernel = rng.normal(size=(D, 2 * COLUMNS))
    expected = np.stack([kernel[:, :COLUMNS], kernel[:, COLUMNS:]])
    assert np.array_equal(tf.concat(to_panels(tf.constant(kernel)), axis=0), expected)
    assert np.array_equal(tf.concat(to_panels(tf.constant(kernel.T), transposed=True), axis=0), expected)


@pytest.mark.parametrize(("threads", "sizes"), [(1, [5]), (2, [2, 3]), (4, [1, 1, 1, 2]), (8, [1] * 5)])
def test_every_thread_has_panels_of_its_own_and_the_product_is_the_same(rng, monkeypatch, threads, sizes):
    monkeypatch.setattr(panels, "THREADS", threads)
    rows, kernel = rng.normal(size=(4, D)), rng.normal(size=(D, 5 * COLUMNS))
    cut = to_panels(tf.constant(kernel))
    assert [part.shape[0] for part in cut] == sizes
    np.testing.assert_allclose(panel_product(tf.constant(rows), cut, 5 * COLUMNS), rows @ kernel)


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(panels, "THREADS", 2)


def layers():
    dense, vocabulary = Dense(71), TokenEmbedding(71, D)
    dense.build((None, D))
    vocabulary.build()
    return [(dense, dense), (vocabulary, vocabulary.logits)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("which", [0, 1], ids=["dense", "embedding"])
def test_a_layer_says_the_same_with_panels_and_takes_them_for_few_rows_only(rng, monkeypatch, which, rows, threads):
    monkeypatch.setattr(panels, "THREADS", threads)
    layer, call = layers()[which]
    x, taken = rng.normal(size=(1, rows, D)).astype("float32"), []

    def spy(rows, panels, size):
        taken.append(rows.shape[0])
        return panel_product(rows, panels, size)

    monkeypatch.setattr(panels, "panel_product", spy)
    without = call(x)
    assert not taken
    with use_panels({layer: layer.panels()}):
        np.testing.assert_allclose(call(x), without, atol=1e-5)
    expected = [rows] if 1 < rows <= FEW_ROWS else []
    assert taken == expected
    call(x)
    assert taken == expected  # outside again


@pytest.mark.parametrize("rows", [1, FEW_ROWS, FEW_ROWS + 1])
def test_a_vocabulary_that_is_turned_around_serves_any_number_of_rows(rng, rows):
    layer, call = layers()[1]
    x = rng.normal(size=(1, rows, D)).astype("float32")
    turned = layer.turned()
    assert turned.shape == (D, 71)
    with use_panels({layer: turned}):
        np.testing.assert_allclose(call(x), np.matmul(x, turned), atol=1e-5)
    with use_panels({layer: 2 * turned}):  # so it is what is read
        found = call(x)
    np.testing.assert_allclose(found, 2 * call(x), atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, GRAPH_FEW_ROWS])
@pytest.mark.parametrize("large", [1, D * 71, D * 71 + 1])
@pytest.mark.parametrize("which", [0, 1], ids=["dense", "embedding"])
def test_a_graph_cuts_large_kernels_into_one_array_of_panels(rng, monkeypatch, which, large, rows):
    monkeypatch.setattr(panels, "GRAPH_LARGE", large)
    layer, call = layers()[which]
    x = rng.normal(size=(1, rows, D)).astype("float32")
    cut = layer.graph_panels()
    assert cut.shape == ((3, D, GRAPH_COLUMNS) if large <= D * 71 else (D, 71))
    with use_panels({layer: cut}):
        by_panels = call(x)
    np.testing.assert_allclose(by_panels, call(x), atol=1e-5)
    with use_panels({layer: 2 * cut}):  # so it is what is read
        found = call(x)
    bias = 0.0 if which else layer.bias
    np.testing.assert_allclose(found - bias, 2 * (call(x) - bias), atol=1e-5)


def test_a_vocabulary_is_a_panel_a_thread():
    vocabulary, _ = layers()[1]
    assert [part.shape for part in vocabulary.panels()] == [(1, D, 36), (1, D, 36)]


def test_a_layer_without_panels_of_its_own_takes_none(rng):
    (dense, _), (vocabulary, _) = layers()
    x = rng.normal(size=(1, 2, D)).astype("float32")
    with use_panels({vocabulary: dense.panels()}):
        found = dense(x)
    assert np.array_equal(found, dense(x))
