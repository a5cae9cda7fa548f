"""What is said in another way is the same, and XLA makes the program that it is said for."""

import re

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast import xla as module
from keras_transformer.fast.xla import PARTS, by_xla_on_cpu, log_sum_exp, subtract_at


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("vocab_size", [3, PARTS, 997, 1003, 8192])  # 997 is a prime
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_log_of_the_sum_is_that_of_all_exponentials(rng, vocab_size, scale, xla):
    logits = rng.normal(size=(2, 3, vocab_size)) * scale
    logits[0, 0, 1:] = -np.inf
    logits[0, 1, :] = -np.inf
    logits[0, 2, 1] = np.inf
    maximum = logits.max(-1, keepdims=True)
    maximum[~np.isfinite(maximum)] = 0
    with np.errstate(divide="ignore", over="ignore"):
        expected = maximum[..., 0] + np.log(np.exp(logits - maximum).sum(-1))
    np.testing.assert_allclose(tf.function(log_sum_exp, jit_compile=xla)(logits), expected, rtol=1e-12)
    maxima = np.stack([logits[..., place::1024].max(-1) for place in range(min(vocab_size, 1024))], axis=-1)
    known = tf.function(lambda x: log_sum_exp(x, tf.constant(maxima)), jit_compile=xla)
    np.testing.assert_allclose(known(logits), expected, rtol=1e-12)


@pytest.mark.cpu
def test_xla_writes_no_exponentials_down_for_their_sum():
    compiled = tf.function(lambda x: log_sum_exp(x), jit_compile=True, autograph=False)
    for size in 64, 8000:
        program = compiled.experimental_get_compiler_ir(tf.ones((64, 20, size)))("optimized_hlo")
        main = program[program.index("ENTRY") :]
        assert re.findall(rf"= f32\[64,20,{size}\]\S* (\w+)", main) == ["parameter"]
        assert len(re.findall(rf"= f32\[64,20,{size // PARTS}\]\S* fusion", main)) <= 1  # the sum of the parts


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_is_named_loses_and_nothing_else(rng, monkeypatch, on_gpu, xla):
    monkeypatch.setattr(module, "on_gpu", lambda: on_gpu)
    x, ids, y = rng.normal(size=(3, 5, 7)), rng.integers(0, 7, (3, 5)), rng.normal(size=(3, 5))
    expected = x.copy()
    np.put_along_axis(expected, ids[..., None], np.take_along_axis(x, ids[..., None], -1) - y[..., None], -1)
    compiled = tf.function(lambda *inputs: subtract_at(*inputs), jit_compile=xla, autograph=False)
    np.testing.assert_array_equal(compiled(x, ids.astype(np.int32), y), expected)


@pytest.mark.cpu
def test_only_what_xla_will_compile_is_for_xla():
    found = []

    def ask(x):
        found.append(by_xla_on_cpu())
        return x

    tf.function(ask, autograph=False)(0.0)
    tf.function(lambda x: tf.function(ask, autograph=False)(x), autograph=False, jit_compile=True)(0.0)
    assert (found, by_xla_on_cpu()) == ([False, True], False)
