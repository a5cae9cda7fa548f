import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast import products_in_graph, strides
from keras_transformer.fast.products import use_products
from keras_transformer.fast.products_in_graph import (
    GRAPH_COLUMNS,
    GRAPH_FEW_ROWS,
    MOST_PARTS,
    by_graph_panels,
    graph_panel_product,
    is_large_in_graph,
    part_sizes,
    summed_network,
    summed_product,
    transpose_in_graph,
    turned_product,
)
from keras_transformer.layers.feed_forward import FeedForward
from tests.fast.kernels import D, dense_and_vocabulary, dense_layers

WITH_AND_WITHOUT_GAPS = pytest.mark.parametrize(
    "regular", [None, 1, D, 71], ids=["no gaps", "gaps", "gaps in the one", "gaps in the other"]
)

PARTS_OF_A_KERNEL = pytest.mark.parametrize(
    ("least", "number"), [(1, MOST_PARTS), (D * 71 // 3, 3), (D * 71 // 2, 2), (D * 71 // 2 + 1, 1), (D * 71 + 1, 1)]
)


@PARTS_OF_A_KERNEL
@pytest.mark.parametrize("rows", [0, 1, 128])
@WITH_AND_WITHOUT_GAPS
def test_a_graph_multiplies_by_parts_of_a_large_kernel(rng, monkeypatch, least, number, rows, regular):
    monkeypatch.setattr(strides, "REGULAR", regular)
    monkeypatch.setattr(products_in_graph, "LEAST_PART", least)
    [layer] = dense_layers(71)
    x = rng.normal(size=(1, rows, D)).astype("float32")

    @tf.function(autograph=False)
    def by_parts(x):
        with use_products({layer: summed_product(layer.cast_kernel(), regular is not None)}):
            return layer(x)

    np.testing.assert_allclose(by_parts(x), layer(x), atol=1e-5)
    assert num_products(by_parts, x) == number


@PARTS_OF_A_KERNEL
@pytest.mark.parametrize("rows", [0, 1, 128])
@WITH_AND_WITHOUT_GAPS
def test_a_graph_adds_narrow_feed_forward_networks(rng, monkeypatch, least, number, rows, regular):
    monkeypatch.setattr(strides, "REGULAR", regular)
    monkeypatch.setattr(products_in_graph, "LEAST_PART", least)
    network = FeedForward(D, 71)
    network.build((None, None, D))
    for variable in network.trainable_variables:  # biases too
        variable.assign(rng.normal(size=variable.shape))
    inner, outer = network.inner, network.outer
    x = rng.normal(size=(1, rows, D)).astype("float32")

    @tf.function(autograph=False)
    def by_parts(x):
        weights = inner.cast_kernel(), inner.bias, outer.cast_kernel(), outer.bias
        with use_products({network: summed_network(*weights, regular is not None)}):
            return network(x)

    np.testing.assert_allclose(by_parts(x), network(x), rtol=1e-4, atol=1e-4)
    assert num_products(by_parts, x) == 2 * number


def num_products(function, x):
    graph = function.get_concrete_function(tf.TensorSpec(x.shape)).graph
    return sum(operation.type == "MatMul" for operation in graph.get_operations())


@pytest.mark.parametrize("gaps", [False, True])
def test_kernels_in_a_graph_get_gaps_between_regular_rows(gaps):
    network = FeedForward(256, 1024)
    network.build((None, None, 256))
    inner, outer = network.inner, network.outer

    @tf.function(autograph=False)
    def products_of(x):
        weights = inner.cast_kernel(), inner.bias, outer.cast_kernel(), outer.bias
        return summed_network(*weights, gaps)(x), summed_product(outer.cast_kernel(), gaps)(x[:, :1] * tf.ones(1024))

    operations = products_of.get_concrete_function(tf.TensorSpec((None, 256))).graph.get_operations()
    widths = {operation.inputs[1].shape[1] for operation in operations if operation.type == "MatMul"}
    assert widths == ({512 + strides.GAP, 256 + strides.GAP} if gaps else {512, 256})


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (512, 2048), (2, 10**6), (4096, 4096)])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_a_kernel_are_nearly_equal_and_no_more_than_it_has_rows(shape, axis):
    sizes = part_sizes(tf.TensorSpec(shape), axis)
    assert sum(sizes) == shape[axis] and 0 <= max(sizes) - min(sizes) <= 1 <= min(sizes)
    assert len(sizes) == {2**20: 4, 2 * 10**6: (2, 4)[axis], 2**24: 4}.get(shape[0] * shape[1], 1)


@pytest.mark.parametrize("rows", [1, 4, GRAPH_FEW_ROWS])
@pytest.mark.parametrize("which", [0, 1], ids=["a dense layer's", "a vocabulary's"])
def test_a_graph_cuts_a_kernel_into_one_array_of_panels(rng, monkeypatch, which, rows):
    seen = []
    monkeypatch.setattr(
        products_in_graph,
        "by_graph_panels",
        lambda x, cut, size: seen.append(cut.shape) or by_graph_panels(x, cut, size),
    )
    layer, call = dense_and_vocabulary()[which]
    x = rng.normal(size=(1, rows, D)).astype("float32")
    with use_products({layer: graph_panel_product(layer.cast_kernel(), transposed=layer.is_transposed)}):
        found = call(x)
    np.testing.assert_allclose(found, call(x), atol=1e-5)
    assert seen == [(3, D, GRAPH_COLUMNS)]


@pytest.mark.parametrize("large, is_large", [(D * 71, True), (D * 71 + 1, False)])
def test_a_kernel_is_large_in_a_graph_from_so_many_numbers_on(monkeypatch, large, is_large):
    monkeypatch.setattr(products_in_graph, "GRAPH_LARGE", large)
    assert all(is_large_in_graph(layer.kernel) == is_large for layer, _ in dense_and_vocabulary())


def test_a_kernel_that_is_turned_around_gives_the_same_product(rng):
    x, kernel = rng.normal(size=(3, D)), rng.normal(size=(71, D))
    np.testing.assert_allclose(turned_product(tf.constant(kernel))(tf.constant(x)), x @ kernel.T)


def test_few_floats_are_turned_around_as_integers(rng):
    x = rng.normal(size=(3, 4, 5)).astype("float32")
    x[0, 0] = np.nan, np.inf, -np.inf, -0.0, 1e-45
    turn = tf.function(lambda x: transpose_in_graph(x, (1, 0, 2)), autograph=False)
    np.testing.assert_array_equal(turn(x).numpy().view("int32"), x.transpose(1, 0, 2).view("int32"))
    [transposition] = [op for op in turn.get_concrete_function(x).graph.get_operations() if op.type == "Transpose"]
    assert transposition.outputs[0].dtype == tf.int32  # oneDNN has none for these
