import keras
import numpy as np
import pytest

from keras_transformer.config import ConfigError, ModelConfig
from keras_transformer.layers.blocks import AddNorm, DecoderBlock, EncoderBlock
from keras_transformer.layers.masks import causal_mask
from tests.reference import layer_norm
from tests.small import ROW_B, SMALL, randomise

B, T, S, D = 3, 7, 11, 26
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, T, D)).astype("float32")


def block(kind, **options):
    made = kind(ModelConfig(**{**SMALL, **options}))
    made.build()
    randomise(made)
    return made


def normalised(layer, x):
    return layer_norm(x, layer.gamma.numpy(), layer.beta.numpy(), layer.epsilon)


def add_norm(norm, **options):
    made = AddNorm(D, norm=norm, epsilon=1e-3, **{"dropout": 0.1, **options})
    made.build()
    randomise(made)
    return made


def test_post_norm_normalises_the_sum(x):
    layer = add_norm("post")
    y = layer.before(x)
    assert y is x
    assert np.allclose(layer.after(x, 2 * y), normalised(layer.layer_norm, 3 * x), atol=1e-5)


def test_pre_norm_normalises_what_the_sublayer_reads_and_leaves_the_sum_alone(x):
    layer = add_norm("pre")
    y = layer.before(x)
    assert np.allclose(y, normalised(layer.layer_norm, x), atol=1e-5)
    assert np.allclose(layer.after(x, y), x + np.asarray(y), atol=1e-6)


@NORMS
def test_training_drops_the_output_of_the_sublayer_and_keeps_the_residual(x, norm):
    layer = add_norm(norm, dropout=0.999999)
    after = layer(x, 7 * x, training=True)
    assert np.allclose(after, normalised(layer.layer_norm, x) if norm == "post" else x, atol=1e-5)


@NORMS
@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_every_sublayer_of_a_block_is_inside_a_dropped_residual(x, norm, kind):
    layer = block(kind, norm=norm, dropout=0.999999)
    parts = [part for part in layer._layers if isinstance(part, AddNorm)]
    assert len(parts) == (2 if kind is EncoderBlock else 3)
    mask = np.ones((1, 1, T), bool)
    if kind is EncoderBlock:
        after = layer(x, mask, training=True)
    else:
        memory = layer.cross_attention.project(x)
        after, _ = layer(x, mask, memory, mask, training=True)
    expected = x
    for part in parts:
        expected = normalised(part.layer_norm, expected) if norm == "post" else expected
    assert np.allclose(after, expected, atol=1e-5)


@NORMS
@pytest.mark.parametrize("widths", [{}, ROW_B], ids=["plain", "row_b"])
def test_a_decoder_block_that_extends_a_cache_gives_what_it_gives_for_the_whole(rng, x, norm, widths):
    layer = block(DecoderBlock, norm=norm, **widths)
    memory = layer.cross_attention.project(rng.normal(size=(B, S, D)).astype("float32"))
    memory_mask = np.ones((B, 1, S), bool)
    mask = np.asarray(causal_mask(T))
    whole, present = layer(x, mask, memory, memory_mask)
    past, parts = present._replace(key=np.zeros_like(present.key), value=np.zeros_like(present.value)), []
    for t in range(T):
        here, place = slice(t, t + 1), past.place(t, width=1)
        part, past = layer(x[:, here], mask[:, here], memory, memory_mask, past=past, place=place)
        parts.append(part)
    assert np.allclose(np.concatenate(parts, axis=1), whole, atol=1e-5)
    assert np.allclose(past.key, present.key, atol=1e-5) and np.allclose(past.value, present.value, atol=1e-5)


@NORMS
def test_a_decoder_block_projects_the_memory_itself_unless_it_has_been_projected(rng, x, norm):
    layer, memory = DecoderBlock(ModelConfig(**SMALL, norm=norm)), rng.normal(size=(B, S, D)).astype("float32")
    projected = layer.cross_attention.project(memory)  # before anything has been built
    masks = np.asarray(causal_mask(T)), np.ones((B, 1, S), bool)
    results = [layer(x, masks[0], given, masks[1])[0] for given in (memory, projected)]
    assert np.array_equal(*results)


@NORMS
def test_add_and_norm_is_built_by_either_half(x, norm):
    layer = AddNorm(D, norm=norm, epsilon=1e-3, dropout=0.0)
    assert np.array_equal(layer.after(x, x), layer(x, x))
    assert AddNorm(D, norm=norm, epsilon=1e-3, dropout=0.0).before(x).shape == x.shape


def test_blocks_are_layers_of_a_functional_model(rng, x):
    config, memory = ModelConfig(**SMALL), rng.normal(size=(B, S, D)).astype("float32")
    encoder, decoder = EncoderBlock(config), DecoderBlock(config)
    masks = np.ones((B, 1, S), bool), np.broadcast_to(causal_mask(T), (B, T, T))
    inputs = [keras.Input(array.shape[1:], dtype=array.dtype.name) for array in (x, memory, *masks)]

    def both(x, memory, memory_mask, mask):
        return decoder(x, mask, encoder(memory, memory_mask), memory_mask)[0]

    outer = keras.Model(inputs, both(*inputs))
    assert np.allclose(outer([x, memory, *masks]), both(x, memory, *masks), atol=1e-6)


@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_a_block_takes_its_configuration_as_an_object_or_as_plain_values(kind):
    config = ModelConfig(**SMALL, norm="pre", **ROW_B)
    assert kind(config).config == kind(config.to_dict()).config == config
    with pytest.raises(ConfigError, match="Did you mean `d_model`?"):
        kind({"dmodel": 3})


@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_the_options_reach_the_parts_of_a_block(kind):
    options = dict(attention_dropout=0.2, feed_forward_dropout=0.3, dropout=0.4, norm_epsilon=1e-3, scoring="additive")
    layer = block(kind, **options)
    assert layer.self_attention.dropout.rate == 0.2 and layer.self_attention.scoring == "additive"
    assert layer.feed_forward.dropout.rate == 0.3
    assert layer.self_attention_norm.dropout.rate == layer.feed_forward_norm.dropout.rate == 0.4
    assert layer.self_attention_norm.layer_norm.epsilon == 1e-3
