import re

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast import products_by_xla
from keras_transformer.fast.panels import to_panels
from keras_transformer.fast.products import use_products
from keras_transformer.fast.products_by_xla import (
    COLUMNS,
    FEW_ROWS,
    LARGE_DENSE_ROWS,
    by_panels,
    by_rows,
    xla_panels,
    xla_products,
)
from tests.fast.kernels import D, dense_and_vocabulary, dense_layers, vocabularies


@pytest.fixture(autouse=True)
def a_processor_with_two_cores_and_avx512(monkeypatch):
    monkeypatch.setattr(products_by_xla, "AVX512", True)
    monkeypatch.setattr(products_by_xla, "THREADS", 2)


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("rows", [1, 2, FEW_ROWS, FEW_ROWS + 1, LARGE_DENSE_ROWS + 1])
@pytest.mark.parametrize(
    "sizes", [[1], [COLUMNS - 1], [COLUMNS], [3 * COLUMNS], [3 * COLUMNS + 5], [71, 1, 2 * COLUMNS]]
)
@pytest.mark.parametrize("large", [1, products_by_xla.LARGE])
@pytest.mark.parametrize("make", [dense_layers, vocabularies])
def test_products_by_panels_are_products_with_the_kernels(rng, monkeypatch, rows, sizes, make, large, compiled):
    for name in ("LARGE", "LARGE_DENSE"):
        monkeypatch.setattr(products_by_xla, name, large)
    layers, x = make(*sizes), rng.normal(size=(rows, D)).astype("float32")

    @tf.function(jit_compile=compiled, autograph=False)
    def multiply(x):
        return [product(x) for product in xla_products(layers).values()]

    for layer, found in zip(layers, multiply(tf.constant(x)), strict=True):
        kernel = layer.kernel.numpy()
        np.testing.assert_allclose(found, x @ (kernel.T if make is vocabularies else kernel), atol=1e-5)


@pytest.mark.parametrize(("threads", "sizes"), [(1, [5]), (2, [3, 3]), (4, [2, 2, 2]), (8, [1] * 5)])
def test_every_array_has_as_many_panels_and_the_product_is_the_same(rng, monkeypatch, threads, sizes):
    seen = []
    monkeypatch.setattr(products_by_xla, "THREADS", threads)
    monkeypatch.setattr(
        products_by_xla, "by_panels", lambda rows, cut, size: seen.append(cut) or by_panels(rows, cut, size)
    )
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
    monkeypatch.setattr(products_by_xla, "THREADS", threads)
    monkeypatch.setattr(products_by_xla, limit, 71 * D)
    [layer], [of_another_kind] = make(71), other(71)
    arrays = xla_panels([layer])
    assert [array.shape for array in arrays] == [(size, D) for size in sizes]
    kernel = layer.kernel.numpy()
    np.testing.assert_array_equal(tf.concat(arrays, axis=0), kernel if layer.is_transposed else kernel.T)
    assert all(array.shape.rank == 3 for array in xla_panels([of_another_kind]))
    monkeypatch.setattr(products_by_xla, limit, 71 * D + 1)
    assert all(array.shape.rank == 3 for array in xla_panels([layer]))


@pytest.mark.parametrize(("rows", "are_few"), [(1, False), (2, True), (FEW_ROWS, True), (FEW_ROWS + 1, False)])
@pytest.mark.parametrize("make", [dense_layers, vocabularies])
def test_without_avx512_small_kernels_are_left_operands_of_few_rows(rng, monkeypatch, rows, are_few, make):
    monkeypatch.setattr(products_by_xla, "AVX512", False)
    layers, x, taken = make(71, 5), tf.constant(rng.normal(size=(rows, D)), tf.float32), []
    monkeypatch.setattr(products_by_xla, "by_rows", lambda x, arrays: taken.append(arrays) or by_rows(x, arrays))

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
        return by_rows(x, arrays)

    compiled = tf.function(multiply, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(tf.ones((3, D)), *[tf.ones((36, D))] * 2)("optimized_hlo")
    shapes = re.findall(r"= f32\[(\d+),(\d+)\]\S* dot\(", program)
    assert shapes == [("36", "3")] * 2, program


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


@pytest.mark.parametrize("rows", [1, 2, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("which", [0, 1], ids=["dense", "embedding"])
def test_a_program_of_xla_takes_panels_for_few_rows_only(rng, monkeypatch, which, rows):
    layer, call = dense_and_vocabulary()[which]
    x, seen = rng.normal(size=(1, rows, D)).astype("float32"), []
    monkeypatch.setattr(products_by_xla, "by_panels", lambda x, cut, size: seen.append(cut) or by_panels(x, cut, size))
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
        monkeypatch.setattr(products_by_xla, name, 1)
    layer, call = dense_and_vocabulary()[which]
    x, seen = rng.normal(size=(1, most + more, D)).astype("float32"), []
    monkeypatch.setattr(products_by_xla, "by_rows", lambda x, arrays: seen.append(arrays) or by_rows(x, arrays))
    with use_products(xla_products([layer])):
        found = call(x)
    np.testing.assert_allclose(found, call(x), atol=1e-5)
    assert len(seen) == 1 - more
