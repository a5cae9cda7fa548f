"""Which products a loop gets. That they change nothing is tested where searches and gradients are."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import model_products
from keras_transformer.fast import products_by_xla, products_in_graph, strides
from keras_transformer.layers.search_caches import FewRowsKVCache
from keras_transformer.model_products import keep_panels, search_products, search_step, training_products
from tests.small import BOS, SMALL, S, T, W, sentences, small_model, variant


@pytest.mark.parametrize("avx512", [False, True])
@pytest.mark.parametrize("dense_is_large", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_a_loop_multiplies_as_suits_it(monkeypatch, is_large, dense_is_large, avx512):
    monkeypatch.setattr(products_by_xla, "AVX512", avx512)
    monkeypatch.setattr(products_by_xla, "LARGE", 1 if is_large else 10**9)
    monkeypatch.setattr(products_by_xla, "LARGE_DENSE", 1 if dense_is_large else 10**9)
    monkeypatch.setattr(products_in_graph, "GRAPH_LARGE", 1 if dense_is_large else 10**9)
    model, made = small_model(d_ff=131), []  # more than one panel
    vocabulary, dense = model.output_embedding, 8 * SMALL["num_decoder_layers"]
    left = is_large + dense * dense_is_large if avx512 else 1 + dense
    for module, name in (
        (products_by_xla, "by_panels"),
        (products_by_xla, "by_rows"),
        (products_in_graph, "by_graph_panels"),
    ):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, n=name, f=original: made.append(n) or f(*args))

    def step(ids, loop, few=False):
        cache = model.start_cache(*model.encode(sentences((S,), S)), max_length=T, beam_width=W, loop=loop)
        logits, after = search_step(model, loop, few)(ids, 0, cache)
        tf.nest.assert_same_structure(after, cache)  # of the same kind, for a loop
        return logits

    ids = tf.constant([[BOS] * W])
    expected = step(ids, "any")
    for loop, few, expected_products in (
        ("any", False, []),
        ("xla", False, ["by_panels"] * (dense + 1 - left) + ["by_rows"] * left),
        ("graph", False, []),
        ("graph", True, ["by_graph_panels"] * (1 + 2 * SMALL["num_decoder_layers"]) * dense_is_large),
    ):
        made.clear()
        found = tf.function(step, jit_compile=loop == "xla", autograph=False)(ids, loop, few)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert sorted(made) == expected_products
    networks = {block.feed_forward for block in model.decoder}
    of_networks = {layer for network in networks for layer in (network.inner, network.outer)}
    of_many, of_few = search_products(model, "graph"), search_products(model, "graph", few=True)
    assert of_few.keys() - of_many.keys() == (of_networks if dense_is_large else set())
    assert of_many.keys() - of_few.keys() == (networks if dense_is_large else set())
    assert len(of_many) == 7 * SMALL["num_decoder_layers"] + 1  # a network is one, all else are dense layers
    assert list(search_products(model, "any")) == [vocabulary] * is_large  # on the left


def test_a_gpu_multiplies_by_whole_kernels(monkeypatch):
    model = small_model(d_ff=131)
    logits = {False: [], True: []}
    for on_gpu, found in logits.items():
        monkeypatch.setattr(model_products, "on_gpu", lambda on_gpu=on_gpu: on_gpu)
        cache = model.start_cache(*model.encode(sentences((S,), S)), max_length=T, beam_width=W, loop="xla")
        step = tf.function(search_step(model, "xla"), jit_compile=True, autograph=False)
        for index in range(3):  # at the first step every query sees one key alone
            after, cache = step(tf.constant([[BOS + index, *range(4, 3 + W)]]), index, cache)
            found.append(after)
    np.testing.assert_allclose(logits[True], logits[False], atol=1e-5)
    of_attention = [block.self_attention for block in model.decoder]
    together = {layer for itself in of_attention for layer in (itself.query, itself.key, itself.value)}
    products = search_products(model, "xla")
    assert products.keys() == together
    of_first = tf.function(lambda rows: [products[layer](rows) for layer in list(products)[:3]])
    graph = of_first.get_concrete_function(tf.ones((W, SMALL["d_model"]))).graph
    kernels = {op.inputs[1].ref(): op.inputs[1].shape for op in graph.get_operations() if op.type == "MatMul"}
    assert list(kernels.values()) == [(SMALL["d_model"], 3 * SMALL["d_model"])]  # the same for all three


@pytest.mark.parametrize("d_ff, large", [(131, "networks"), (8, "vocabulary")])
def test_a_graph_cuts_only_what_is_large(monkeypatch, d_ff, large):
    model, cut = small_model(d_ff=d_ff), []
    kernels = [
        layer.kernel for block in model.decoder for layer in (block.feed_forward.inner, block.feed_forward.outer)
    ]
    expected = {"networks": kernels, "vocabulary": [model.output_embedding.kernel]}[large]
    monkeypatch.setattr(products_in_graph, "GRAPH_LARGE", math.prod(expected[0].shape))
    monkeypatch.setattr(model_products, "graph_panel_product", lambda kernel, **_: cut.append(tuple(kernel.shape)))
    search_products(model, "graph", few=True)
    assert sorted(cut) == sorted(tuple(kernel.shape) for kernel in expected)


@pytest.mark.parametrize(("loop", "few", "times"), [("graph", True, 2), ("graph", False, 0), ("xla", True, 0)])
def test_few_rows_in_a_graph_attend_in_a_way_of_their_own(monkeypatch, loop, few, times):
    model, asked = small_model(), []
    original = FewRowsKVCache.softmax
    monkeypatch.setattr(FewRowsKVCache, "softmax", staticmethod(lambda x: asked.append(0) or original(x)))
    cache = model.start_cache(*model.encode(sentences((S,), S)), max_length=T, beam_width=W, loop=loop)
    step = tf.function(search_step(model, loop, few), jit_compile=loop == "xla", autograph=False)
    step(tf.constant([[BOS] * W]), 0, cache)
    assert len(asked) == times * SMALL["num_decoder_layers"]


@pytest.mark.parametrize(("loop", "few", "kernels"), [("graph", True, 0), ("graph", False, 8), ("xla", False, 0)])
def test_kernels_for_many_rows_in_a_graph_get_gaps(monkeypatch, loop, few, kernels):
    monkeypatch.setattr(strides, "REGULAR", 1)
    model = small_model()
    cache = model.start_cache(*model.encode(sentences((S,), S)), max_length=T, beam_width=W, loop=loop)
    step = tf.function(search_step(model, loop, few), jit_compile=loop == "xla", autograph=False)
    ids = tf.constant([[BOS] * W])
    np.testing.assert_allclose(step(ids, 0, cache)[0], model.step(ids, 0, cache)[0], atol=1e-5)
    operations = step.get_concrete_function(ids, 0, cache).graph.get_operations()
    with_gaps = {SMALL[name] + strides.GAP for name in ("d_model", "d_ff")}
    gaps = [op for op in operations if op.type == "MatMul" and op.inputs[1].shape[1] in with_gaps]
    assert len(gaps) == kernels * SMALL["num_decoder_layers"]


def test_an_unknown_loop_is_refused():
    with pytest.raises(ValueError, match="Received: loop='XLA'."):
        search_products(variant("post"), "XLA")


def test_kept_panels_are_those_of_the_layers_that_a_step_goes_through():
    model = small_model()
    panels = keep_panels(model)
    panels.refresh()
    step = search_products(model, "xla", panels=panels)
    memory = {layer for block in model.decoder for layer in (block.cross_attention.key, block.cross_attention.value)}
    assert len(step) == 8 * SMALL["num_decoder_layers"] + 1 and not memory & step.keys()
    assert all(panels.of((layer,)) for block in model.decoder for layer in (block.feed_forward.inner,))


def test_what_is_not_trained_has_no_product_of_training():
    model = small_model()
    everything = training_products(model, [])
    model.decoder[0].feed_forward.trainable = False
    kept = training_products(model, [])
    network = model.decoder[0].feed_forward
    assert everything.keys() - kept.keys() == {network.inner, network.outer}
    assert model.output_embedding in kept
