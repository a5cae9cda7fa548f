import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import ConfigError, SmoothedCrossEntropy, Transformer, TransformerSchedule
from keras_transformer.fast.products import use_products
from keras_transformer.layers.attention import record_attention
from keras_transformer.layers.embedding import TokenEmbedding
from keras_transformer.losses import cross_entropies, token_weights
from keras_transformer.model_products import search_products
from tests.small import (
    BOS,
    EOS,
    PAD,
    SMALL,
    SOURCE_LENGTHS,
    VARIANTS,
    B,
    S,
    T,
    V,
    W,
    padded_pairs,
    sentences,
    small_model,
    variant,
)

EVERY_VARIANT = pytest.mark.parametrize("name", VARIANTS)
TWO_VARIANTS = pytest.mark.parametrize("name", ["post", "everything"])


def logits_of(model, source_ids, target_ids, **options):
    return np.asarray(model((source_ids, target_ids), **options))


# --- one position at a time


def stepped_logits(model, source_ids, target_ids, index=int):
    """The logits of one step after the other. (B, T, V)"""
    cache = model.start_cache(*model.encode(source_ids), max_length=target_ids.shape[1])
    steps = []
    for t in range(target_ids.shape[1]):
        logits, cache = model.step(target_ids[:, t : t + 1], index(t), cache)
        steps.append(logits)
    return ops.concatenate(steps, axis=1)


@EVERY_VARIANT
def test_steps_with_a_cache_equal_teacher_forcing_at_every_position(name):
    source_ids, target_ids = sentences(SOURCE_LENGTHS, S), sentences((T,) * B, T, first=BOS)
    expected = logits_of(variant(name), source_ids, target_ids)
    assert np.allclose(stepped_logits(variant(name), source_ids, target_ids), expected, atol=1e-5)


@TWO_VARIANTS
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_index_of_a_step_may_be_a_tensor(name, dtype):
    source_ids, target_ids = sentences(SOURCE_LENGTHS, S), sentences((T,) * B, T, first=BOS)
    stepped = stepped_logits(variant(name), source_ids, target_ids, index=lambda t: tf.constant(t, dtype))
    assert np.allclose(stepped, logits_of(variant(name), source_ids, target_ids), atol=1e-5)


@TWO_VARIANTS
@pytest.mark.parametrize(
    ("loop", "compiled"),
    [("any", False), ("any", True), ("graph", False), ("xla", True)],
    ids=["any-graph", "any-xla", "graph", "xla"],
)
def test_steps_in_a_while_loop_equal_teacher_forcing(name, loop, compiled):
    model = variant(name)
    shapes = [tf.TensorSpec((None, None), "int32")] * 2

    @tf.function(input_signature=None if compiled else shapes, jit_compile=compiled)
    def run(source_ids, target_ids):
        steps = tf.shape(target_ids)[1]
        cache = model.start_cache(*model.encode(source_ids), max_length=T, loop=loop)
        ways = search_products(model, loop)
        logits = tf.zeros((steps, tf.shape(target_ids)[0], 1, V))

        def body(t, cache, logits):
            with use_products(ways):
                step_logits, cache = model.step(tf.gather(target_ids, [t], axis=1), t, cache)
            return t + 1, cache, tf.tensor_scatter_nd_update(logits, [[t]], step_logits[None])

        _, _, logits = tf.while_loop(lambda t, *_: t < steps, body, (0, cache, logits))
        return tf.transpose(logits[:, :, 0], (1, 0, 2))

    source_ids, target_ids = sentences(SOURCE_LENGTHS, S), sentences((T,) * B, T, first=BOS)
    assert np.allclose(run(source_ids, target_ids), logits_of(model, source_ids, target_ids), atol=1e-5)


@pytest.mark.parametrize("name", ["post", "everything", "row_b"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_every_beam_equals_teacher_forcing_of_its_own_history(rng, name, compiled):
    model = variant(name)
    step = tf.function(model.step, jit_compile=True) if compiled else model.step
    reorder = tf.function(model.reorder, jit_compile=True) if compiled else model.reorder
    memory, memory_mask = model.encode(sentences(SOURCE_LENGTHS, S))
    cache = model.start_cache(memory, memory_mask, max_length=T, beam_width=W)
    memory, memory_mask = ops.repeat(memory, W, axis=0), ops.repeat(memory_mask, W, axis=0)  # (B*W, S, D)
    history = np.zeros((B, W, 0), "int32")
    for t in range(T):
        ids = rng.integers(EOS + 1, V, (B, W), dtype="int32")
        history = np.concatenate([history, ids[:, :, None]], axis=2)
        logits, cache = step(ids, tf.constant(t), cache)
        expected = model.decode(history.reshape(B * W, t + 1), memory, memory_mask)[:, -1]
        assert np.allclose(logits, np.reshape(expected, (B, W, V)), atol=1e-5), f"step {t}"
        parents = rng.integers(0, W, (B, W), dtype="int32")
        cache = reorder(cache, parents)
        history = np.take_along_axis(history, parents[:, :, None], axis=1)


def test_a_cache_may_have_more_room_than_is_used():
    model = variant("post")
    source_ids, target_ids = sentences(SOURCE_LENGTHS, S), sentences((T,) * B, T, first=BOS)
    cache = model.start_cache(*model.encode(source_ids), max_length=T + 11)
    logits, _ = model.step(target_ids[:, :1], 0, cache)
    assert np.allclose(logits, logits_of(model, source_ids, target_ids)[:, :1], atol=1e-5)


@pytest.mark.parametrize(("loop", "compiled"), [("any", False), ("graph", False), ("xla", True)])
def test_a_cache_may_grow(rng, loop, compiled):
    model = variant("everything")
    ids, parents = (rng.integers(low, high, (T, B, W), dtype="int32") for low, high in ((EOS + 1, V), (0, W)))

    def run(loop, has_all_room):
        memory, memory_mask = model.encode(sentences(SOURCE_LENGTHS, S))
        cache = model.start_cache(memory, memory_mask, T if has_all_room else 0, beam_width=W, loop=loop)
        steps = []
        for t in range(T):
            cache = cache if has_all_room else model.grow(cache, t // 3 * 3 + 3)
            logits, cache = model.step(ids[t], t, cache)
            cache = model.reorder(cache, parents[t])
            steps.append(logits)
        return ops.stack(steps)

    found = run if loop == "any" else tf.function(run, jit_compile=compiled, autograph=False)
    np.testing.assert_allclose(found(loop, False), run("any", True), atol=1e-5)


def test_an_unknown_loop_is_refused():
    with pytest.raises(ValueError, match="`loop` must be one of 'any', 'graph', 'xla'. Received: loop='XLA'."):
        variant("post").start_cache(*variant("post").encode(sentences((S,), S)), max_length=T, loop="XLA")


def test_steps_in_bfloat16_stay_near_teacher_forcing():
    model = small_model(norm="pre", dtype="mixed_bfloat16")
    source_ids, target_ids = sentences(SOURCE_LENGTHS, S), sentences((T,) * B, T, first=BOS)
    expected = logits_of(model, source_ids, target_ids)
    stepped = stepped_logits(model, source_ids, target_ids)
    assert stepped.dtype == "float32"
    assert np.abs(stepped - expected).max() < 0.05 * np.abs(expected).max()


# --- what changes nothing


@EVERY_VARIANT
@pytest.mark.parametrize("extra", [(2, 0), (0, 3), (1, 5)], ids=["source", "target", "both"])
def test_more_padding_changes_no_logits_of_real_tokens(name, extra):
    source_ids, target_ids = padded_pairs()
    longer = [np.pad(ids, ((0, 0), (0, n))) for ids, n in zip((source_ids, target_ids), extra, strict=True)]
    before, after = logits_of(variant(name), source_ids, target_ids), logits_of(variant(name), *longer)
    live = target_ids != PAD
    assert np.allclose(after[:, :T][live], before[live], atol=1e-5)


@TWO_VARIANTS
def test_a_pair_does_not_depend_on_its_neighbours_in_the_batch(name):
    source_ids, target_ids = padded_pairs()
    together = logits_of(variant(name), source_ids, target_ids)
    for row in range(B):
        source, target = (ids[row : row + 1, : np.count_nonzero(ids[row])] for ids in (source_ids, target_ids))
        alone = logits_of(variant(name), source, target)[0]
        assert np.allclose(together[row, : len(alone)], alone, atol=1e-5)


def reset_dropout(model):
    for variable in model.variables:
        if "seed_generator" in variable.path:
            variable.assign(ops.zeros_like(variable))


@TWO_VARIANTS
@pytest.mark.parametrize("training", [False, True], ids=["inference", "dropout"])
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_the_future_changes_nothing(name, training, recorded):
    model = small_model(**VARIANTS[name], dropout=0.3)
    source_ids, target_ids = sentences(SOURCE_LENGTHS, S), sentences((T,) * B, T, first=BOS)

    def run(target_ids):
        reset_dropout(model)
        if not recorded:
            return logits_of(model, source_ids, target_ids, training=training), []
        with record_attention() as record:
            logits = logits_of(model, source_ids, target_ids, training=training)
        return logits, [weights for _, weights in record[len(model.encoder) :]]

    logits, weights = run(target_ids)
    assert np.array_equal(logits, run(target_ids)[0])  # the same dropout masks in every run
    for cut in range(1, T):
        other = np.concatenate([target_ids[:, :cut], sentences((T - cut,) * B, T - cut, seed=cut)], axis=1)
        other_logits, other_weights = run(other)
        assert np.allclose(other_logits[:, :cut], logits[:, :cut], atol=1e-5)
        assert not np.allclose(other_logits[:, cut:], logits[:, cut:], atol=1e-3)
        for before, after in zip(weights, other_weights, strict=True):
            assert np.allclose(after[:, :, :cut], before[:, :, :cut], atol=1e-5)


# --- attention maps


@pytest.mark.parametrize("name", ["post", "everything", "neighbourhood"])
def test_attention_maps_sum_to_one_over_the_allowed_keys_and_are_zero_elsewhere(name):
    model, (source_ids, target_ids) = variant(name), padded_pairs()
    maps, (N, M, H) = model.attention_maps(source_ids, target_ids), (2, 3, 2)  # noqa: N806
    assert [part.shape for part in maps] == [(N, B, H, S, S), (M, B, H, T, T), (M, B, H, T, S)]

    reach = S if model.config.neighbourhood is None else model.config.neighbourhood // 2
    distance = np.subtract.outer(np.arange(S), np.arange(S))
    source, target = (source_ids != PAD)[:, None, :], (target_ids != PAD)[:, None, :]
    past = (distance >= 0)[:T, :T]
    allowed_keys = source & (abs(distance) <= reach), target & past & (abs(distance) <= reach)[:T, :T], source
    queries = source_ids != PAD, target_ids != PAD, target_ids != PAD
    for part, allowed, live in zip(maps, allowed_keys, queries, strict=True):
        part = np.moveaxis(np.asarray(part), 1, 0)  # (B, layers, H, T, S)
        allowed = np.broadcast_to(allowed[:, None, None], part.shape)
        live = np.broadcast_to(live[:, None, None], part.shape[:-1])
        assert np.allclose(part.sum(-1)[live], 1, atol=1e-5)
        assert np.all(part[live][~allowed[live]] == 0)
        assert np.all(part[live][allowed[live]] > 0)


@TWO_VARIANTS
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_asking_for_attention_weights_leaves_the_logits_bit_equal(name, graph):
    model, pairs = variant(name), padded_pairs()

    def ask(source_ids, target_ids):
        with record_attention() as record:
            logits = model((source_ids, target_ids))
        return logits, [weights for _, weights in record]

    run = tf.function(ask) if graph else ask
    plain = tf.function(lambda *pair: model(pair)) if graph else (lambda *pair: model(pair))
    logits, weights = run(*pairs)
    assert np.array_equal(logits, plain(*pairs))
    assert len(weights) == 2 + 2 * 3


def test_an_earlier_layer_comes_first_in_the_attention_maps():
    model, (source_ids, target_ids) = small_model(), padded_pairs()
    before = model.attention_maps(source_ids, target_ids)
    query = model.decoder[1].cross_attention.query.kernel
    query.assign(-query)
    after = model.attention_maps(source_ids, target_ids)
    assert np.array_equal(before.encoder, after.encoder)
    assert np.array_equal(before.decoder[:2], after.decoder[:2]) and np.array_equal(before.cross[0], after.cross[0])
    assert not np.allclose(before.decoder[2], after.decoder[2]) and not np.allclose(before.cross[1], after.cross[1])


# --- the options


def test_the_default_is_the_base_model_of_the_paper():
    assert Transformer.from_preset("base", vocab_size=V, **SMALL).config == Transformer(V, **SMALL).config


@pytest.mark.parametrize(
    ("options", "matrices"),
    [
        (dict(tied_embeddings="all"), [V]),
        (dict(tied_embeddings="target", source_vocab_size=37), [V, 37]),
        (dict(tied_embeddings="none", source_vocab_size=37), [V, 37, V]),
    ],
    ids=["all", "target", "none"],
)
def test_tied_embeddings_share_their_matrix(options, matrices):
    model = Transformer(V, **SMALL, **options)
    assert [layer.vocab_size for layer in model.layers if isinstance(layer, TokenEmbedding)] == matrices
    assert model.count_params() == Transformer(V, **SMALL).count_params() + SMALL["d_model"] * (sum(matrices) - V)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_dropout_is_on_sublayer_outputs_and_on_the_sums_of_embeddings_and_positions(monkeypatch, stack):
    model = small_model(norm="pre", dropout=0.999999)
    for norm in (model.encoder_norm, model.decoder_norm):
        norm.beta.assign(ops.zeros_like(norm.beta))
    if stack == "encoder":
        monkeypatch.setattr(model, "decode", lambda target_ids, memory, memory_mask: memory)
    # Nothing enters the residual stream of a pre-norm stack but what dropout lets in, and inference drops nothing.
    assert np.abs(logits_of(model, *padded_pairs(), training=True)).max() == 0
    assert np.abs(logits_of(model, *padded_pairs(), training=False)).max() > 0.1


def test_no_dropout_is_active_inside_attention_or_feed_forward_unless_asked_for():
    model = Transformer(V, **SMALL, dropout=0.3)
    for block in (*model.encoder, *model.decoder):
        assert block.self_attention.dropout.rate == block.feed_forward.dropout.rate == 0.0


@pytest.mark.parametrize("sinusoids", [997])
def test_sinusoids_reach_beyond_any_length(sinusoids):
    source_ids = sentences((sinusoids,), sinusoids)
    assert np.isfinite(logits_of(variant("post"), source_ids, sentences((T,), T, first=BOS))).all()


def test_fresh_weights_are_those_of_docs_paper():
    sizes = dict(d_model=64, d_ff=128, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(211, positions="learned", max_positions=101, scoring="additive", **sizes)
    for weight in model.trainable_variables:
        values = weight.numpy()
        if weight.name in ("kernel", "score_vector"):  # Glorot uniform
            limit = np.sqrt(6 / sum(values.shape))
            assert 0.8 * limit < np.abs(values).max() <= limit, weight.path
            assert np.std(values) == pytest.approx(limit / np.sqrt(3), rel=0.1 if values.size > 1000 else 0.3), (
                weight.path
            )
        elif weight.name in ("embeddings", "table"):
            assert np.std(values) == pytest.approx(64**-0.5, rel=0.05), weight.path
        else:
            assert (values == (weight.name == "gamma")).all() and weight.name in ("gamma", "beta", "bias"), weight.path


@pytest.mark.parametrize("side", ["source", "target"])
def test_sentences_beyond_the_learned_positions_fail_clearly(side):
    model = variant("learned")
    lengths = {"source": S, "target": T, side: 17}
    source_ids, target_ids = (sentences((lengths[end],), lengths[end]) for end in ("source", "target"))
    with pytest.raises(ValueError, match=r"Learned positions end at 13 \(`max_positions`\)"):
        model((source_ids, target_ids))
    graph = tf.function(lambda *pair: model(pair), input_signature=[tf.TensorSpec((None, None), "int32")] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Learned positions end at 13 "):
        graph(source_ids, target_ids)


def test_steps_beyond_the_learned_positions_fail_clearly():
    model = variant("learned")
    cache = model.start_cache(*model.encode(sentences((S,), S)), max_length=17)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Learned positions end at 13 "):
        model.step(np.array([[BOS]]), 13, cache)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(vocab_size=V, d_modle=8), "Unknown key `d_modle` in ModelConfig. Did you mean `d_model`?"),
        (dict(vocab_size=V, dropout=1.5), "`dropout` must be at least 0 and less than 1. Received: dropout=1.5."),
        (dict(vocab_size=0), "`vocab_size` must be a positive integer. Received: vocab_size=0."),
        (dict(vocab_size=True), "`vocab_size` must be a positive integer. Received: vocab_size=True."),
        (dict(vocab_size=31.0), "`vocab_size` must be a positive integer. Received: vocab_size=31.0."),
        (dict(vocab_size=V, source_vocab_size=-1), "`source_vocab_size` must be a positive integer. Received: "),
        (dict(vocab_size=V, source_vocab_size=0), "`source_vocab_size` must be a positive integer. Received: "),
        (dict(vocab_size=V, source_vocab_size=37), '`tied_embeddings="all"` needs one vocabulary'),
    ],
)
def test_impossible_arguments_fail_before_anything_is_built(monkeypatch, arguments, message):
    monkeypatch.setattr(keras.layers.Layer, "add_weight", lambda *_, **__: pytest.fail("a weight was made"))
    with pytest.raises(ConfigError) as failure:
        Transformer(**arguments)
    assert message in str(failure.value)


# --- gradients


def loss_of(model, source_ids, target_ids):
    """The mean smoothed loss of a token, in the model's precision."""
    labels = np.roll(target_ids, -1, axis=1)
    losses, _ = cross_entropies(labels, model((source_ids, target_ids), training=False), label_smoothing=0.1)
    weights = ops.cast(token_weights(labels), losses.dtype)
    return ops.sum(losses * weights) / ops.sum(weights)


def gradients_of(model, pairs):
    with tf.GradientTape() as tape:
        loss = loss_of(model, *pairs)
    return [tf.convert_to_tensor(g) for g in tape.gradient(loss, [w.value for w in model.trainable_variables])]


@EVERY_VARIANT
def test_gradients_reach_every_weight(name):
    model = variant(name)
    for weight, gradient in zip(model.trainable_variables, gradients_of(model, padded_pairs()), strict=True):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-7, weight.path


@pytest.mark.parametrize("name", ["post", "everything", "dot_product"])
def test_gradients_agree_with_finite_differences_in_float64(rng, name):
    model, pairs = small_model(**VARIANTS[name], dtype="float64"), padded_pairs()
    loss = tf.function(lambda: loss_of(model, *pairs))
    step = 1e-6
    for weight, gradient in zip(model.trainable_variables, gradients_of(model, pairs), strict=True):
        assert gradient.dtype == "float64"
        value, direction = weight.numpy(), rng.normal(size=weight.shape)
        ends = []
        for sign in (1, -1):
            weight.assign(value + sign * step * direction)
            ends.append(float(loss()))
        weight.assign(value)
        slope = (ends[0] - ends[1]) / (2 * step)
        assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-5, abs=1e-8), weight.path


# --- learning


def test_a_tiny_model_learns_fifty_pairs_by_heart():
    lengths = np.random.default_rng(3).integers(3, S + 1, 50)
    source_ids = sentences(lengths, S, seed=1)
    labels = np.where(source_ids != PAD, (source_ids[:, ::-1] * 3 + 5) % (V - 3) + 3, PAD)  # an arbitrary target
    target_ids = np.concatenate([np.full((50, 1), BOS), labels[:, :-1]], axis=1)
    model = Transformer(V, num_encoder_layers=1, num_decoder_layers=1, d_model=32, d_ff=64, num_heads=2, dropout=0.0)
    schedule = TransformerSchedule(32, warmup_steps=50, scale=0.5)
    loss = SmoothedCrossEntropy(label_smoothing=0.0)
    model.compile(keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9), loss, jit_compile=False)
    batch = tf.data.Dataset.from_tensors(((source_ids, target_ids), labels))
    before = model.evaluate(batch, verbose=0)
    model.fit(batch.repeat(200), shuffle=False, verbose=0)
    assert before > 3 and model.evaluate(batch, verbose=0) < 0.02
    assert np.array_equal(np.argmax(logits_of(model, source_ids, target_ids), -1)[labels != PAD], labels[labels != PAD])


def test_keras_exports_it_for_ids_of_any_shape(rng, tmp_path):
    model = Transformer(31, d_model=10, d_ff=13, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model.export(tmp_path / "export", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "export"))
    for rows, source_length, target_length in ((1, 5, 7), (3, 4, 2)):
        ids = rng.integers(1, 31, (rows, source_length)), rng.integers(1, 31, (rows, target_length))
        ids = tuple(tf.constant(each, tf.int32) for each in ids)
        np.testing.assert_allclose(exported.serve(ids), model(ids), atol=1e-5)
