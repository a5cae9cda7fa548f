import re

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast import products, strides
from keras_transformer.fast.products import (
    COLUMNS,
    FEW_ROWS,
    GRAPH_COLUMNS,
    GRAPH_FEW_ROWS,
    LARGE_DENSE_ROWS,
    LEFT_PARTS,
    LEFT_ROWS,
    MOST_PARTS,
    by_graph_panels,
    by_panels,
    graph_panel_product,
    left_product,
    part_sizes,
    summed_network,
    summed_product,
    to_panels,
    turned_product,
    use_products,
    xla_products,
)
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.layers.feed_forward import FeedForward

D = 24
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])


@pytest.fixture(autouse=True)
def a_processor_with_two_cores_and_avx512(monkeypatch):
    monkeypatch.setattr(products, "AVX512", True)
    monkeypatch.setattr(products, "THREADS", 2)


def dense_layers(*sizes):
    layers = [Dense(size) for size in sizes]
    for layer in layers:
        layer.build((None, D))
    return layers


def vocabularies(*sizes):
    layers = [TokenEmbedding(size, D) for size in sizes]
    for layer in layers:
        layer.build()
    return layers


@COMPILED
@pytest.mark.parametrize("rows", [1, 2, FEW_ROWS, FEW_ROWS + 1, LARGE_DENSE_ROWS + 1])
@pytest.mark.parametrize(
    "sizes", [[1], [COLUMNS - 1], [COLUMNS], [3 * COLUMNS], [3 * COLUMNS + 5], [71, 1, 2 * COLUMNS]]
)
@pytest.mark.parametrize("large", [1, products.LARGE])
@pytest.mark.parametrize("make", [dense_layers, vocabularies])
def test_products_by_panels_are_products_with_the_kernels(rng, monkeypatch, rows, sizes, make, large, compiled):
    for name in ("LARGE", "LARGE_DENSE"):
        monkeypatch.setattr(products, name, large)
    layers, x = make(*sizes), rng.normal(size=(rows, D)).astype("float32")

    @tf.function(jit_compile=compiled, autograph=False)
    def multiply(x):
        return [product(x) for product in xla_products(layers).values()]

    for layer, found in zip(layers, multiply(tf.constant(x)), strict=True):
        kernel = layer.kernel.numpy()
        np.testing.assert_allclose(found, x @ (kernel.T if make is vocabularies else kernel), atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_panel_holds_columns_that_are_neighbours(rng, transposed):
    kernel = rng.normal(size=(D, 2 * COLUMNS))
    expected = np.stack([kernel[:, :COLUMNS], kernel[:, COLUMNS:]])
    cut = to_panels(tf.constant(kernel.T if transposed else kernel), transposed, COLUMNS, num_arrays=2)
    assert np.array_equal(tf.concat(cut, axis=0), expected)


@pytest.mark.parametrize(("threads", "sizes"), [(1, [5]), (2, [3, 3]), (4, [2, 2, 2]), (8, [1] * 5)])
def test_every_array_has_as_many_panels_and_the_product_is_the_same(rng, monkeypatch, threads, sizes):
    seen = []
    monkeypatch.setattr(products, "THREADS", threads)
    monkeypatch.setattr(products, "by_panels", lambda rows, cut, size: seen.append(cut) or by_panels(rows, cut, size))
    rows = rng.normal(size=(4, D)).astype("float32")
    [layer] = dense_layers(5 * COLUMNS)
    [multiply] = xla_products([layer]).values()
    np.testing.assert_allclose(multiply(tf.constant(rows)), rows @ layer.kernel.numpy(), atol=1e-5)
    [cut] = seen
    assert [part.shape for part in cut] == [(size, D, COLUMNS) for size in sizes]


@pytest.mark.parametrize(("threads", "sizes"), [(1, [71]), (2, [36, 35]), (4, [18, 18, 18, 17])])
@pytest.mark.parametrize(
    ("make", "limit", "other"), [(vocabularies, "LARGE", dense_layers), (dense_layers, "LARGE_DENSE", vocabularies)]
)
def test_the_rows_of_a_large_kernel_are_shared_out_among_threads(monkeypatch, threads, sizes, make, limit, other):
    monkeypatch.setattr(products, "THREADS", threads)
    monkeypatch.setattr(products, limit, 71 * D)
    [layer], [of_another_kind] = make(71), other(71)
    arrays = products.xla_panels([layer])
    assert [array.shape for array in arrays] == [(size, D) for size in sizes]
    kernel = layer.kernel.numpy()
    np.testing.assert_array_equal(tf.concat(arrays, axis=0), kernel if layer.is_transposed else kernel.T)
    assert all(array.shape.rank == 3 for array in products.xla_panels([of_another_kind]))
    monkeypatch.setattr(products, limit, 71 * D + 1)
    assert all(array.shape.rank == 3 for array in products.xla_panels([layer]))


@pytest.mark.parametrize(("rows", "are_few"), [(1, False), (2, True), (FEW_ROWS, True), (FEW_ROWS + 1, False)])
@pytest.mark.parametrize("make", [dense_layers, vocabularies])
def test_without_avx512_small_kernels_are_left_operands_of_few_rows(rng, monkeypatch, rows, are_few, make):
    monkeypatch.setattr(products, "AVX512", False)
    layers, x, taken = make(71, 5), tf.constant(rng.normal(size=(rows, D)), tf.float32), []
    by_rows = products.by_rows
    monkeypatch.setattr(products, "by_rows", lambda x, arrays: taken.append(arrays) or by_rows(x, arrays))

    def multiply(x):
        return [product(x) for product in xla_products(layers).values()]

    found, compiled = multiply(x), tf.function(multiply, jit_compile=True, autograph=False)
    assert len(taken) == are_few * len(layers)
    for layer, y, by_xla in zip(layers, found, compiled(x), strict=True):
        kernel = layer.kernel.numpy()
        np.testing.assert_allclose(y, x @ (kernel.T if make is vocabularies else kernel), atol=1e-5)
        np.testing.assert_allclose(by_xla, y, atol=1e-5)


@pytest.mark.cpu
def test_rows_of_a_vocabulary_are_left_operands(rng):
    def multiply(x, *arrays):
        return products.by_rows(x, arrays)

    compiled = tf.function(multiply, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(tf.ones((3, D)), *[tf.ones((36, D))] * 2)("optimized_hlo")
    shapes = re.findall(r"= f32\[(\d+),(\d+)\]\S* dot\(", program)
    assert shapes == [("36", "3")] * 2, program


def test_few_floats_are_turned_around_as_integers(rng):
    x = rng.normal(size=(3, 4, 5)).astype("float32")
    x[0, 0] = np.nan, np.inf, -np.inf, -0.0, 1e-45
    turn = tf.function(lambda x: products.transpose_in_graph(x, (1, 0, 2)), autograph=False)
    np.testing.assert_array_equal(turn(x).numpy().view("int32"), x.transpose(1, 0, 2).view("int32"))
    [transposition] = [op for op in turn.get_concrete_function(x).graph.get_operations() if op.type == "Transpose"]
    assert transposition.outputs[0].dtype == tf.int32  # oneDNN has none for these


def test_the_panels_of_all_threads_are_multiplied_by_one_copy_of_the_rows(rng):
    """With a copy each, XLA may let one product wait for another (see `by_panels`)."""
    panels = to_panels(tf.constant(rng.normal(size=(D, 4 * COLUMNS))), False, COLUMNS, num_arrays=4)
    graph = tf.function(lambda rows: by_panels(rows, panels, 4 * COLUMNS)).get_concrete_function(
        tf.TensorSpec((3, D), tf.float64)
    )
    multiplications = [op for op in graph.graph.get_operations() if op.type == "BatchMatMulV2"]
    assert len(multiplications) == 4 and len({op.inputs[0].name for op in multiplications}) == 1


@pytest.mark.cpu
def test_xla_multiplies_by_kernels_that_lie_side_by_side_at_once(rng):
    layers = dense_layers(COLUMNS, COLUMNS, 2 * COLUMNS)

    def multiply(x):
        return [product(x) for product in xla_products(layers).values()]

    compiled = tf.function(multiply, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(tf.ones((3, D)))("optimized_hlo")
    assert len(re.findall(r" dot\(", program)) == 2  # an array of panels a thread


@COMPILED
@pytest.mark.parametrize("rows", [1, LEFT_ROWS, LEFT_ROWS + 1])
@pytest.mark.parametrize("size", [LEFT_PARTS * 9, LEFT_PARTS * 9 + 1])
def test_a_kernel_on_the_left_gives_the_same_product(rng, rows, size, compiled):
    x, kernel = rng.normal(size=(rows, D)), rng.normal(size=(size, D))
    product = tf.function(lambda x, kernel: left_product(kernel)(x), jit_compile=compiled, autograph=False)
    np.testing.assert_allclose(product(tf.constant(x), tf.constant(kernel)), x @ kernel.T)


def test_a_kernel_that_is_turned_around_gives_the_same_product(rng):
    x, kernel = rng.normal(size=(3, D)), rng.normal(size=(71, D))
    np.testing.assert_allclose(turned_product(tf.constant(kernel))(tf.constant(x)), x @ kernel.T)


# --- of layers


def layers():
    [dense], [vocabulary] = dense_layers(71), vocabularies(71)
    return [(dense, dense), (vocabulary, vocabulary.logits)]


@pytest.mark.parametrize("which", [0, 1], ids=["dense", "embedding"])
def test_a_layer_multiplies_by_its_product_inside_of_use_products_only(rng, which):
    layer, call = layers()[which]
    x = rng.normal(size=(1, 2, D)).astype("float32")
    expected = call(x)
    with use_products({layer: lambda rows: tf.ones((rows.shape[0], 71))}):
        np.testing.assert_array_equal(call(x), tf.ones((1, 2, 71)) + (0.0 if which else layer.bias))
    other, _ = layers()[1 - which]
    with use_products({other: lambda rows: tf.ones((rows.shape[0], 71))}):
        np.testing.assert_array_equal(call(x), expected)
    np.testing.assert_array_equal(call(x), expected)


@pytest.mark.parametrize("rows", [1, 2, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("which", [0, 1], ids=["dense", "embedding"])
def test_a_program_of_xla_takes_panels_for_few_rows_only(rng, monkeypatch, which, rows):
    layer, call = layers()[which]
    x, seen = rng.normal(size=(1, rows, D)).astype("float32"), []
    monkeypatch.setattr(products, "by_panels", lambda x, cut, size: seen.append(cut) or by_panels(x, cut, size))
    with use_products(xla_products([layer])):
        found = call(x)
    np.testing.assert_allclose(found, call(x), atol=1e-5)
    assert len(seen) == (1 < rows <= FEW_ROWS)
    for cut in seen:  # 71 columns
        assert [part.shape for part in cut] == [(1, D, COLUMNS)] * 2


@pytest.mark.parametrize(
    ("which", "most"), [(0, LARGE_DENSE_ROWS), (1, FEW_ROWS)], ids=["a dense layer's", "a vocabulary's"]
)
@pytest.mark.parametrize("more", [0, 1])
def test_a_large_kernel_is_a_left_operand_up_to_so_many_rows(rng, monkeypatch, which, most, more):
    for name in ("LARGE", "LARGE_DENSE"):
        monkeypatch.setattr(products, name, 1)
    layer, call = layers()[which]
    x, seen, by_rows = rng.normal(size=(1, most + more, D)).astype("float32"), [], products.by_rows
    monkeypatch.setattr(products, "by_rows", lambda x, arrays: seen.append(arrays) or by_rows(x, arrays))
    with use_products(xla_products([layer])):
        found = call(x)
    np.testing.assert_allclose(found, call(x), atol=1e-5)
    assert len(seen) == 1 - more


@pytest.mark.parametrize("rows", [1, 4, GRAPH_FEW_ROWS])
@pytest.mark.parametrize("which", [0, 1], ids=["a dense layer's", "a vocabulary's"])
def test_a_graph_cuts_a_kernel_into_one_array_of_panels(rng, monkeypatch, which, rows):
    seen = []
    monkeypatch.setattr(
        products, "by_graph_panels", lambda x, cut, size: seen.append(cut.shape) or by_graph_panels(x, cut, size)
    )
    layer, call = layers()[which]
    x = rng.normal(size=(1, rows, D)).astype("float32")
    with use_products({layer: graph_panel_product(layer.cast_kernel(), transposed=layer.is_transposed)}):
        found = call(x)
    np.testing.assert_allclose(found, call(x), atol=1e-5)
    assert seen == [(3, D, GRAPH_COLUMNS)]


@pytest.mark.parametrize("large, is_large", [(D * 71, True), (D * 71 + 1, False)])
def test_a_kernel_is_large_in_a_graph_from_so_many_numbers_on(monkeypatch, large, is_large):
    monkeypatch.setattr(products, "GRAPH_LARGE", large)
    assert all(products.is_large_in_graph(layer.kernel) == is_large for layer, _ in layers())


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
    monkeypatch.setattr(products, "LEAST_PART", least)
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
    monkeypatch.setattr(products, "LEAST_PART", least)
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


def num_products(function, x):
    graph = function.get_concrete_function(tf.TensorSpec(x.shape)).graph
    return sum(operation.type == "MatMul" for operation in graph.get_operations())


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (512, 2048), (2, 10**6), (4096, 4096)])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_a_kernel_are_nearly_equal_and_no_more_than_it_has_rows(shape, axis):
    sizes = part_sizes(tf.TensorSpec(shape), axis)
    assert sum(sizes) == shape[axis] and 0 <= max(sizes) - min(sizes) <= 1 <= min(sizes)
    assert len(sizes) == {2**20: 4, 2 * 10**6: (2, 4)[axis], 2**24: 4}.get(shape[0] * shape[1], 1)
