"""benchmarks/products.py: they are all the products that limit.py counts, and every one of them is made."""

import limit
import numpy as np
import products
import pytest
import tensorflow as tf
import works

from keras_transformer.fast.gradients import value_product

TINY = dict(vocab_size=31, num_encoder_layers=1, num_decoder_layers=2, d_model=10, d_ff=13, num_heads=2)
WORK = works.Training("tiny", batch=3, source_length=5, target_length=5, steps=1)


@pytest.fixture(scope="module")
def forward():
    return list(products.forward_products(WORK, TINY))


def test_they_are_those_of_a_step(forward):
    multiply_adds = sum(np.prod(p.left.shape) * p.function(p.left, p.right).shape[-1] for p in forward)
    assert 3 * multiply_adds == limit.training(WORK, TINY).multiply_adds


def test_each_has_the_gradients_of_both_sides(forward):
    results, gradients = products.program(forward)()
    for product, result, (d_left, d_right) in zip(forward, results, gradients, strict=True):
        left, right = np.array(product.left), np.array(product.right)
        transposed = product.function not in (tf.matmul, value_product)
        factor = right.swapaxes(-1, -2) if transposed else right
        dy = left @ factor
        np.testing.assert_allclose(result, dy, atol=1e-5)
        np.testing.assert_allclose(d_left, dy @ factor.swapaxes(-1, -2), atol=1e-4)
        d_factor = left.swapaxes(-1, -2) @ dy
        np.testing.assert_allclose(d_right, d_factor.swapaxes(-1, -2) if transposed else d_factor, atol=1e-4)


def test_none_is_left_out(forward):
    hlo = products.passes(forward).experimental_get_compiler_ir()(stage="optimized_hlo")
    kernels = sum(product.right_is_kernel for product in forward)
    assert hlo.count(" dot(") == 3 * len(forward) - kernels
    operations = products.program(forward).get_concrete_function().graph.get_operations()
    assert sum("MatMul" in operation.type for operation in operations) == kernels


def test_a_measurement(run_here, monkeypatch):
    monkeypatch.setitem(works.MODELS, "small", TINY)
    monkeypatch.setitem(works.WORKS, "T1", WORK._replace(model="small"))
    (record,) = run_here(products, "--work", "T1", "--repeats", 2)
    assert record["work"] == "T1" and record["median"] > 0
