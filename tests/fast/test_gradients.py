"""Gradients that are made in another way are the gradients, and XLA gets the program that they are for."""

import gc
import re
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Transformer
from keras_transformer.fast import gradients as module
from keras_transformer.fast import strides
from keras_transformer.fast.gradients import (
    FactoredGradients,
    factor_product,
    factored_gradients,
    kernel_product,
    key_product,
    multiplied,
    on_every_row,
    value_product,
)
from keras_transformer.fast.products import use_products
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.dense import Dense, LayerNormalization
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.losses import cross_entropies
from keras_transformer.model_products import training_products

pytestmark = pytest.mark.cpu

SIZES = dict(d_model=16, d_ff=31, num_heads=2, num_encoder_layers=1, num_decoder_layers=2, dropout=0.0)


def gradients(model, inputs, weights, *, factored, xla):
    """Of a weighted sum of all logits, by all variables, and of how many of them XLA got to make nothing."""
    variables, left_out = model.trainable_variables, []

    @tf.function(jit_compile=xla, autograph=False)
    def passes():
        with tf.GradientTape() as tape, use_products(training_products(model, left_out) if factored else {}):
            loss = tf.reduce_sum(model(inputs, training=True) * weights)
        return factored_gradients(tape, loss, variables, left_out)

    handed_over = passes()
    return multiplied(handed_over, variables), len(variables) - len(handed_over.made)


SMALL = [(256, 1024, 2), (1024, 256, 2), (256, 100, 1), (32000, 256, 1), (512, 512, 2), (300, 300, 0)]
NOT_SMALL = [(257, 1024, 0), (1024, 257, 0), (512, 768, 0), (768, 512, 0)]


@pytest.mark.parametrize("avx2_alone", [False, True])
@pytest.mark.parametrize("height, width, gaps", SMALL + NOT_SMALL)
def test_regular_factors_of_small_products_get_gaps(rng, monkeypatch, avx2_alone, height, width, gaps):
    monkeypatch.setattr("keras_transformer.fast.gradients.AVX2_ALONE", avx2_alone)
    left, right = (rng.normal(size=(5, columns)).astype("float32") for columns in (height, width))
    function = tf.function(kernel_product, autograph=False)
    np.testing.assert_allclose(function(tf.constant(left), tf.constant(right)), left.T @ right, rtol=1e-4, atol=1e-4)
    rows_unknown = [tf.TensorSpec((None, columns)) for columns in (height, width)]
    operations = function.get_concrete_function(*rows_unknown).graph.get_operations()
    assert sum(operation.type == "Pad" for operation in operations) == (gaps if avx2_alone else 0)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("tied_embeddings", ["all", "target", "none"])
def test_factors_multiplied_are_the_gradients(rng, tied_embeddings, xla):
    model = Transformer(53, tied_embeddings=tied_embeddings, **SIZES)
    inputs = tuple(tf.constant(rng.integers(1, 53, size=(3, length)), tf.int32) for length in (7, 5))
    weights = tf.constant(rng.normal(size=(3, 5, 53)), tf.float32)
    expected, none = gradients(model, inputs, weights, factored=False, xla=xla)
    got, left_out = gradients(model, inputs, weights, factored=True, xla=xla)
    assert none == 0
    of_step, of_projections = 8 * 2, 4 + 2 + 2 * 2  # kernels: decoder but for the memory's; encoder, and the memory's
    assert left_out == of_step + of_projections + (tied_embeddings == "none")  # a tied one has the embedding's, too
    for variable, a, b in zip(model.trainable_variables, got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max(), err_msg=variable.path)


def test_what_several_products_have_on_their_left_is_handed_over_once(rng):
    model, left_out = Transformer(53, **SIZES), []
    inputs = tuple(tf.constant(rng.integers(1, 53, size=(3, length)), tf.int32) for length in (7, 5))

    @tf.function(jit_compile=True, autograph=False)
    def passes():
        with tf.GradientTape() as tape, use_products(training_products(model, left_out)):
            loss = tf.reduce_sum(model(inputs, training=True))
        return factored_gradients(tape, loss, model.trainable_variables, left_out)

    attention, network = 2, 2  # the rows of queries, keys and values, and those of the output; two kernels
    encoder, decoder = attention + network, attention + attention + network
    memory, vocabulary = 1, 1  # the decoder's layers have the same memory
    assert len(passes().lefts) == encoder + 2 * decoder + memory + vocabulary
    assert len(left_out) == (4 + 2) + 2 * (4 + 4 + 2) + 1


def test_one_tensor_as_rows_of_two_widths_is_two_left_sides(rng):
    layers, left_out = [Dense(2, use_bias=False) for _ in range(2)], []
    for layer, width in zip(layers, (6, 12), strict=True):
        layer.build((None, width))
    variables = [layer.kernel for layer in layers]
    x = tf.constant(rng.normal(size=(2, 12)), tf.float32)

    @tf.function(autograph=False)
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows = [tf.reshape(x, (-1, variable.shape[0])) for variable in variables]
            products = [factor_product(layer, left_out)(x) for layer, x in zip(layers, rows, strict=True)]
            loss = tf.add_n([tf.reduce_sum(y) for y in products])
        return multiplied(factored_gradients(tape, loss, variables, left_out), variables)

    for gradient, variable in zip(gradients(), variables, strict=True):
        rows = x.numpy().reshape((-1, variable.shape[0]))
        np.testing.assert_allclose(gradient, np.stack([rows.sum(axis=0)] * 2, axis=1), rtol=1e-5)


def waits_for(operation):
    """All operations that come before."""
    before, found = [operation], set()
    while before:
        operation = before.pop()
        fresh = {*operation.control_inputs, *(x.op for x in operation.inputs)} - found
        found |= fresh
        before.extend(fresh)
    return found


@pytest.mark.parametrize("gaps", [False, True])
def test_the_largest_product_is_alone_and_first_and_takes_the_rows_of_embeddings(monkeypatch, gaps):
    monkeypatch.setattr("keras_transformer.fast.gradients.AVX2_ALONE", gaps)
    monkeypatch.setattr(strides, "REGULAR", 1)
    vocabulary, kernels = tf.Variable(tf.zeros((50, 4))), [tf.Variable(tf.zeros(shape)) for shape in ((4, 6), (6, 4))]
    rows = tf.IndexedSlices(tf.ones((3, 4)), tf.constant([2, 7, 2]), tf.constant([50, 4]))
    places = {1: vocabulary, 0: kernels[0], 2: kernels[1]}

    lefts = [tf.ones((5, v.shape[0])) for v in places.values()]
    rights = {place: {left: [tf.ones((5, v.shape[1]))]} for left, (place, v) in enumerate(places.items())}
    factors = FactoredGradients({1: rows}, lefts, rights)

    @tf.function(autograph=False)
    def function(factors):
        return multiplied(factors, [places[place] for place in range(3)])

    operations = function.get_concrete_function(factors).graph.get_operations()
    products = [operation for operation in operations if "MatMul" in operation.type]
    first, *others = sorted(products, key=lambda product: -product.outputs[0].shape[-2])
    assert not waits_for(first) & set(products) and len(others) == 2
    assert all(first in waits_for(other) for other in others)
    if gaps:
        pads = [operation for operation in operations if operation.type == "Pad"]
        assert sum(first in waits_for(pad) for pad in pads) == 4 and len(pads) == 6
    else:
        assert first.type == "BatchMatMulV2" and {other.type for other in others} == {"MatMul", "BatchMatMulV2"}
    assert [operation.type for operation in operations].count("InplaceAdd") == 1
    function(factors)
    for place, gradient in enumerate(function(factors)):
        expected = np.full(places[place].shape, 5.0)
        if place == 1:
            np.add.at(expected, rows.indices, 1.0)
        np.testing.assert_array_equal(gradient, expected)


def test_a_frozen_kernel_has_no_factors(rng):
    model = Transformer(53, **SIZES)
    model.encoder[0].trainable = model.target_embedding.trainable = False
    inputs = tuple(tf.constant(rng.integers(1, 53, size=(3, length)), tf.int32) for length in (7, 5))
    weights = tf.constant(rng.normal(size=(3, 5, 53)), tf.float32)
    expected, _ = gradients(model, inputs, weights, factored=False, xla=False)
    got, left_out = gradients(model, inputs, weights, factored=True, xla=False)
    assert left_out == 2 * (8 + 2)
    for variable, a, b in zip(model.trainable_variables, got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max(), err_msg=variable.path)


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_kernel_that_multiplies_twice_has_both_gradients(rng, in_graph):
    layer, embedding = Dense(6, use_bias=False), TokenEmbedding(9, 6)
    layer.build((None, 6))
    embedding.build((None,))
    x = tf.constant(rng.normal(size=(4, 6)), tf.float32)

    def gradients(layers):
        left_out = []
        with tf.GradientTape() as tape, use_products({layer: factor_product(layer, left_out) for layer in layers}):
            y = layer(x)
            logits = embedding.logits((y * layer(x) + layer(y))[None])
            loss = tf.reduce_sum(tf.square(logits)) + tf.reduce_sum(embedding.logits(y[None]))
        variables = [layer.kernel, embedding.kernel]
        factored = factored_gradients(tape, loss, variables, left_out)
        return multiplied(factored, variables), len(left_out)

    if in_graph:  # there the rows of both products with x are seen to be the same
        gradients = tf.function(gradients, autograph=False)
    got, num_left_out = gradients([layer, embedding])
    expected, none = gradients([])
    assert (num_left_out, none) == (5, 0)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def test_gradients_of_half_precision_are_those_of_the_variables(rng):
    model = Transformer(53, dtype="mixed_bfloat16", **SIZES)
    inputs = tuple(tf.constant(rng.integers(1, 53, size=(3, length)), tf.int32) for length in (7, 5))
    weights = tf.constant(rng.normal(size=(3, 5, 53)), tf.float32)
    expected, _ = gradients(model, inputs, weights, factored=False, xla=True)
    got, _ = gradients(model, inputs, weights, factored=True, xla=True)
    for variable, a, b in zip(model.trainable_variables, got, expected, strict=True):
        assert a.dtype == variable.dtype == "float32"
        np.testing.assert_allclose(a, b, atol=3e-2 * np.abs(b).max(), err_msg=variable.path)


@pytest.mark.parametrize("product", [key_product, value_product])
def test_products_of_heads_have_their_gradients(rng, product):
    second = {key_product: (2, 3, 7, 8), value_product: (2, 3, 8, 4)}[product]
    operands = [tf.constant(rng.normal(size=shape)) for shape in ((2, 3, 5, 8), second)]
    plain = {key_product: lambda a, b: tf.matmul(a, b, transpose_b=True), value_product: tf.matmul}[product]
    weights = rng.normal(size=plain(*operands).shape)

    def run(function, xla):
        @tf.function(jit_compile=xla, autograph=False)
        def result_and_gradients():
            with tf.GradientTape() as tape:
                tape.watch(operands)
                y = function(*operands)
            return y, *tape.gradient(y, operands, output_gradients=weights)

        return result_and_gradients()

    for xla in (False, True):
        for got, expected in zip(run(product, xla), run(plain, False), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-12)


def test_xla_transposes_what_stands_on_the_left_of_the_gradients_of_keys_and_values():
    @tf.function(jit_compile=True, autograph=False)
    def gradients(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch((key, value))
            loss = tf.reduce_sum(tf.square(value_product(key_product(query, key), value)))
        return tape.gradient(loss, (key, value))

    program = gradients.experimental_get_compiler_ir(*3 * [tf.ones((2, 2, 5, 4))])("optimized_hlo")
    contracted = re.findall(r" dot\(.*lhs_contracting_dims=\{(\d)\}", program)
    assert len(contracted) >= 5 and set(contracted) == {"3"}


def test_attention_of_the_model_has_these_gradients():
    attention = MultiHeadAttention(2, 8, d_k=4, d_v=4)
    attention.build()

    @tf.function(jit_compile=True, autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(attention(x, x, tf.ones((1, 1, 5), bool))))
        return tape.gradient(loss, x)

    program = gradient.experimental_get_compiler_ir(tf.ones((2, 5, 8)))("optimized_hlo")
    of_heads = re.findall(r" dot\(.*lhs_batch_dims=\{0,1\}.*lhs_contracting_dims=\{(\d)\}", program)
    assert len(of_heads) == 6 and set(of_heads) == {"3"}


def test_xla_makes_the_gradient_of_a_bias_as_a_product():
    layer = Dense(16)
    layer.build((None, 8))

    @tf.function(jit_compile=True, autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(x, training=True)))
        return tape.gradient(loss, layer.bias.value)

    program = gradient.experimental_get_compiler_ir(tf.ones((64, 8)))("optimized_hlo")
    assert re.findall(r"= (f32\[\d+,\d+\])\S* dot\(", program) == ["f32[64,16]", "f32[8,16]"]


def test_xla_makes_the_gradients_of_a_normalisation_as_products_and_nobody_else_does():
    layer = LayerNormalization()
    layer.build((None, 16))

    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(layer(x, training=True)))
        return tape.gradient(loss, [layer.gamma.value, layer.beta.value])

    compiled = tf.function(gradients, jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(tf.ones((64, 16)))("optimized_hlo")
    assert re.findall(r"= (f32\[\d+,\d+\])\S* dot\(", program) == ["f32[8,16]"] * 2
    graph = tf.function(gradients, autograph=False).get_concrete_function(tf.TensorSpec((None, 16))).graph
    made_by = [x.op for x in graph.outputs]
    while any(operation.type in ("Identity", "Reshape") for operation in made_by):
        made_by = [op.inputs[0].op if op.type in ("Identity", "Reshape") else op for op in made_by]
    assert [operation.type for operation in made_by] == ["Sum"] * 2
    assert not {operation.type for operation in graph.get_operations()} & {"MatMul", "BroadcastTo"}


def test_keys_that_all_sentences_share_have_one_gradient(rng):
    query, key = tf.constant(rng.normal(size=(2, 3, 5, 8))), tf.constant(rng.normal(size=(1, 3, 7, 8)))

    def gradient(xla):
        @tf.function(jit_compile=xla, autograph=False)
        def by_key():
            with tf.GradientTape() as tape:
                tape.watch(key)
                scores = tf.square(key_product(query, key))
            return tape.gradient(scores, key)

        return by_key()

    np.testing.assert_allclose(gradient(True), gradient(False), atol=1e-12)


def test_gradients_of_gradients_are_those_without_xla(rng):
    model = Transformer(53, **SIZES)
    inputs = tuple(tf.constant(rng.integers(1, 53, size=(3, length)), tf.int32) for length in (7, 5))
    kernel = model.decoder[0].self_attention.key.kernel.value

    def second(xla):
        @tf.function(jit_compile=xla, autograph=False)
        def of_norm():
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    loss = tf.reduce_sum(tf.square(model(inputs, training=True)))
                norm = tf.reduce_sum(tf.square(inner.gradient(loss, kernel)))
            return outer.gradient(norm, kernel)

        return of_norm()

    expected = second(False).numpy()
    np.testing.assert_allclose(second(True), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("xla", [False, True])
def test_nothing_outlives_its_graph(xla):
    ids, labels = tf.ones((2, 3), tf.int32), np.ones((2, 3), np.int32)

    def trace():
        model = Transformer(53, **SIZES)

        @tf.function(jit_compile=xla, autograph=False)
        def losses():
            with tf.GradientTape() as tape:
                smoothed, _ = cross_entropies(labels, model((ids, ids), training=True), 0.1)
            return tape.gradient(smoothed, [v.value for v in model.trainable_variables])

        losses()
        return weakref.ref(losses.get_concrete_function().graph)

    graph = trace()
    keras.backend.clear_session()
    gc.collect()
    assert graph() is None


def test_a_gradient_without_xla_has_nothing_of_xla():
    layer = Dense(16)
    layer.build((None, 64))

    @tf.function(autograph=False)
    def gradients(x, heads):
        with tf.GradientTape() as tape:
            tape.watch(heads)
            sums = (
                tf.reduce_sum(layer(x, training=True)),
                tf.reduce_sum(value_product(key_product(heads, heads), heads)),
            )
        return tape.gradient(sums, [layer.kernel.value, heads])

    function = gradients.get_concrete_function(tf.ones((32, 64)), tf.ones((2, 2, 5, 64)))
    kinds = {operation.type for operation in function.graph.get_operations()}
    assert {"MatMul", "BatchMatMulV2"} <= kinds
    assert not [kind for kind in kinds if kind.startswith("Xla")]


@pytest.mark.parametrize("slow", [True, False])
def test_the_gradient_of_a_vector_is_a_product_where_sums_are_slow(rng, monkeypatch, slow):
    monkeypatch.setattr(module, "by_xla_on_cpu", lambda: slow)
    vector, x, weights = (tf.constant(rng.normal(size=size), tf.float32) for size in (16, (3, 5, 16), (3, 5, 16)))

    @tf.function(jit_compile=True, autograph=False)
    def gradient(vector):
        with tf.GradientTape() as tape:
            tape.watch(vector)
            y = tf.reduce_sum(on_every_row(vector, x) * weights)
        return tape.gradient(y, vector)

    np.testing.assert_allclose(gradient(vector), tf.reduce_sum(weights, (0, 1)), atol=1e-5)
    assert (" dot(" in gradient.experimental_get_compiler_ir(vector)("hlo")) == slow
