"""What a Keras user expects of any Keras model."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import (
    NegativeLogLikelihood,
    Perplexity,
    SmoothedCrossEntropy,
    TokenAccuracy,
    Transformer,
    TransformerSchedule,
)
from keras_transformer.config import ConfigError, ModelConfig
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.blocks import AddNorm, DecoderBlock, EncoderBlock
from keras_transformer.layers.embedding import LearnedPositions, TokenEmbedding
from keras_transformer.layers.feed_forward import FeedForward
from tests.processes import environment
from tests.small import BOS, SMALL, VARIANTS, B, S, T, V, padded_pairs, randomise, sentences, small_model, variant

TINY = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=26, d_ff=29, num_heads=2, dropout=0.1)
NUM_PAIRS = 13  # not a multiple of the batch size

LAYERS = [
    MultiHeadAttention(2, 26, d_k=5, d_v=17, dropout=0.2, scoring="additive", name="mine"),
    TokenEmbedding(V, 23),
    LearnedPositions(13, 23, dtype="mixed_bfloat16"),
    FeedForward(26, 29, dropout=0.2, trainable=False),
    AddNorm(26, norm="pre", epsilon=1e-3, dropout=0.2),
    EncoderBlock(ModelConfig(**SMALL, **VARIANTS["row_b"], norm="pre"), dtype="float64"),
    DecoderBlock(ModelConfig(**SMALL, scoring="additive"), name="mine"),
]


@pytest.fixture(scope="module")
def data():
    """source_ids, target_ids, labels of a few random pairs."""
    lengths = np.random.default_rng(3).integers(2, T + 1, NUM_PAIRS)
    labels = sentences(lengths, T, seed=2)
    target_ids = np.concatenate([np.full((NUM_PAIRS, 1), BOS, "int32"), labels[:, :-1]], axis=1)
    return sentences(lengths, S, seed=1), target_ids, labels


def compiled(jit_compile=False, **changes):
    model = Transformer(V, **{**TINY, **changes})
    model.compile(
        optimizer=keras.optimizers.Adam(TransformerSchedule(26, warmup_steps=5), beta_2=0.98, epsilon=1e-9),
        loss=SmoothedCrossEntropy(0.1),
        weighted_metrics=[NegativeLogLikelihood(), Perplexity(), TokenAccuracy()],
        jit_compile=jit_compile,
    )
    return model


def as_dataset(source_ids, target_ids, labels, batch_size):
    weights = (labels != 0).astype("float32")
    return tf.data.Dataset.from_tensor_slices(((source_ids, target_ids), labels, weights)).batch(batch_size)


# --- serialisation


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_survives_its_configuration(layer):
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer), safe_mode=True)
    assert type(restored) is type(layer) and restored.get_config() == layer.get_config()
    assert (restored.name, restored.dtype_policy, restored.trainable) == (
        layer.name,
        layer.dtype_policy,
        layer.trainable,
    )
    for made in (layer, restored):
        made.build()
        randomise(made)
    assert [(w.name, w.shape, w.dtype) for w in restored.weights] == [(w.name, w.shape, w.dtype) for w in layer.weights]


def test_the_layers_of_a_model_survive_their_configurations():
    model = Transformer(V, **{**SMALL, **VARIANTS["everything"]}, dropout=0.25, dtype="mixed_bfloat16")
    layers = [layer for layer in model._flatten_layers(include_self=False) if "keras_transformer" in layer.__module__]
    assert {type(layer) for layer in LAYERS} < {type(layer) for layer in layers}
    for layer in layers:
        restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
        assert restored.get_config() == layer.get_config()


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_is_registered_under_the_name_of_the_package(layer):
    name = f"keras_transformer>{type(layer).__name__}"
    assert keras.saving.get_registered_object(name) is type(layer)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_survives_its_configuration(name):
    model = Transformer(V, **{**SMALL, **VARIANTS[name]}, name="mine", dtype="mixed_bfloat16")
    restored = Transformer.from_config(model.get_config())
    assert restored.get_config() == model.get_config()
    assert (restored.config, restored.name, restored.dtype_policy) == (model.config, "mine", model.dtype_policy)


@pytest.mark.parametrize("name", ["post", "everything", "target_tied"])
def test_a_saved_model_predicts_the_same(tmp_path, name):
    model, pairs = variant(name), padded_pairs()
    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert restored.config == model.config
    assert np.array_equal(restored(pairs), model(pairs))


def test_a_saved_model_goes_on_training_where_it_was(tmp_path, data):
    source_ids, target_ids, labels = data
    model = compiled(dropout=0.0)
    model.train_on_batch((source_ids, target_ids), labels)
    model.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    assert int(restored.optimizer.iterations) == int(model.optimizer.iterations) == 1
    for each in (model, restored):
        each.train_on_batch((source_ids, target_ids), labels)
    for ours, theirs in zip(model.weights, restored.weights, strict=True):
        assert np.allclose(ours, theirs, atol=1e-6), ours.path


def test_what_is_frozen_stays_frozen_where_a_model_is_saved_or_cloned(tmp_path, data):
    source_ids, target_ids, labels = data
    model = compiled(dropout=0.0)
    for layer in (*model.encoder, model.target_embedding, model.decoder[0].self_attention):
        layer.trainable = False
    model.encoder[0].feed_forward.trainable = True  # in a block that is frozen
    model.compile(keras.optimizers.Adam(1e-3), SmoothedCrossEntropy(0.1))
    model.train_on_batch((source_ids, target_ids), labels)
    model.save(tmp_path / "model.keras")
    trained = {v.path for v in model.trainable_variables}
    assert {path.split("/")[1] for path in trained} == {"encoder_0", "decoder_0"}
    assert "frozen" not in compiled().get_config()
    restored = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    for copy in (restored, keras.models.clone_model(model), Transformer(**model.get_config())):
        assert {v.path for v in copy.trainable_variables} == trained
    assert int(restored.optimizer.iterations) == 1
    restored.trainable = False  # Keras hands on only what changes
    restored.trainable = True
    assert len(restored.trainable_variables) == len(compiled().trainable_variables)


def test_a_layer_that_only_a_subclass_has_may_be_frozen(tmp_path):
    model = WithItsOwn(V, **SMALL)
    model.head.trainable = model.encoder[0].trainable = False
    assert model.get_config()["frozen"][0] == "encoder_0"
    model.save(tmp_path / "mine.keras")
    assert not keras.saving.load_model(tmp_path / "mine.keras").encoder[0].trainable


def test_only_layers_that_there_are_can_be_frozen():
    with pytest.raises(ConfigError, match=r"paths of layers, such as \"encoder_0\". Received: \['encoder_9'\]"):
        Transformer(V, **SMALL, frozen=["encoder_0", "encoder_9"])


@pytest.mark.parametrize("policies", [("float32", "mixed_bfloat16"), ("mixed_bfloat16", "float32")])
def test_weights_are_the_same_under_every_policy(tmp_path, policies):
    first, second = (small_model(**VARIANTS["everything"], dtype=policy) for policy in policies)
    for weight in second.trainable_variables:
        weight.assign(keras.ops.zeros_like(weight))
    first.save_weights(tmp_path / "model.weights.h5")
    second.load_weights(tmp_path / "model.weights.h5")
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(first.weights, second.weights, strict=True))


# --- what can be seen


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("post", ["target_embedding", "source_dropout", "encoder_0", "encoder_1", "decoder_2"]),
        ("everything", ["source_embedding", "output_embedding", "target_positions", "encoder_norm", "decoder_norm"]),
    ],
)
def test_the_summary_shows_the_parts_and_their_parameters(name, parts):
    lines = []
    variant(name).summary(print_fn=lines.append)
    text = "\n".join(lines)
    assert all(part in text for part in parts)
    assert f"Total params: {variant(name).count_params():,}" in text


def test_a_model_is_built_at_once_and_every_weight_has_its_own_path():
    model = Transformer(V, **SMALL)
    assert model.built
    assert len({weight.path for weight in model.weights}) == len(model.weights) == 1 + 2 * 12 + 3 * 18


def test_the_output_shape_is_known_beforehand():
    assert variant("untied").compute_output_shape(((B, S), (B, T))) == (B, T, V)


def test_a_model_is_a_layer_of_a_functional_model():
    model, pairs = variant("post"), padded_pairs()
    inputs = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    outer = keras.Model(inputs, keras.ops.argmax(model(inputs), axis=-1))
    assert np.array_equal(outer(pairs), np.argmax(model(pairs), axis=-1))


def test_ids_that_are_floats_keep_their_digits_under_mixed_precision():
    model = Transformer(1000, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                        dtype="mixed_bfloat16")  # fmt: skip
    ids = np.array([[257, 511, 999, 3]], "int32")  # bfloat16 has 256, 512 and 1,000 next to them
    as_floats = keras.Input((None,)), keras.Input((None,))
    outer = keras.Model(as_floats, model(as_floats))
    floats = ids.astype("float32")
    for logits in model((floats, floats)), outer((floats, floats)):
        assert np.array_equal(logits, model((ids, ids)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["post", "everything"])
def test_what_comes_out_is_known_beforehand(name, dtype):
    model, ids = variant(name, dtype=dtype), keras.Input((7,), dtype="int32")
    logits = model((ids, ids))
    assert (logits.shape, logits.dtype) == ((None, 7, V), model(padded_pairs()).dtype)
    assert model.target_embedding(ids).dtype == model.target_embedding(padded_pairs()[0]).dtype
    if name == "everything":
        positions = keras.Input(batch_shape=(7,), dtype="int32")
        assert model.target_positions(positions).dtype == model.target_positions(np.arange(7)).dtype


def test_masks_are_explicit_and_none_is_attached_to_an_output():
    model, (source_ids, target_ids) = variant("post"), padded_pairs()
    memory, _ = model.encode(source_ids)
    assert not hasattr(memory, "_keras_mask") and not hasattr(model((source_ids, target_ids)), "_keras_mask")


# --- compile, fit, evaluate, predict


@pytest.mark.parametrize(
    ("kind", "batch_size", "jit_compile"),
    [("arrays", 5, False), ("dataset", NUM_PAIRS, True)],
    ids=["arrays", "dataset_xla"],
)
def test_fit_evaluate_and_predict_work_with_ordinary_callbacks(tmp_path, data, kind, batch_size, jit_compile):
    source_ids, target_ids, labels = data
    model = compiled(jit_compile)
    if kind == "dataset":
        valid = as_dataset(*data, batch_size)
        train = dict(x=valid, shuffle=False)
    else:
        valid = ((source_ids, target_ids), labels)
        train = dict(x=(source_ids, target_ids), y=labels, batch_size=batch_size)
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="val_perplexity", save_best_only=True),
        keras.callbacks.ModelCheckpoint(tmp_path / "right.keras", monitor="val_accuracy", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="val_nll", patience=3, restore_best_weights=True),
    ]
    history = model.fit(**train, validation_data=valid, epochs=3, callbacks=callbacks, verbose=0).history
    assert {"loss", "nll", "perplexity", "accuracy", "val_loss", "val_nll", "val_perplexity"} <= set(history)
    assert history["loss"][-1] < history["loss"][0]

    evaluate = {name: value for name, value in train.items() if name != "shuffle"}
    scores = model.evaluate(**evaluate, return_dict=True, verbose=0)
    assert scores["perplexity"] == pytest.approx(np.exp(scores["nll"]), rel=1e-4)
    assert scores["nll"] == pytest.approx(min(history["val_nll"]), rel=1e-4)

    best = keras.saving.load_model(tmp_path / "best.keras", safe_mode=True)
    for ours, theirs in zip(model.trainable_variables, best.trainable_variables, strict=True):
        assert np.array_equal(ours, theirs), ours.path

    logits = model.predict((source_ids, target_ids), batch_size=batch_size, verbose=0)
    assert logits.shape == (NUM_PAIRS, T, V)
    assert np.allclose(logits, model((source_ids, target_ids)), atol=1e-4)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, x, x), lambda x: {"a": x}, lambda x: (x, x[:, 0])])
def test_what_is_no_pair_of_ids_is_refused(wrap):
    with pytest.raises(ValueError, match=r"`inputs` must be the pair source_ids \(B, S\), target_ids \(B, T\)."):
        small_model().predict(wrap(np.ones((2, 3), np.int32)), verbose=0)


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: (x, x, x), lambda x: {"a": x}, lambda x: (x, keras.Input((None, 3)))]
)
def test_what_is_no_pair_of_symbols_is_refused(wrap):
    with pytest.raises(ValueError, match=r"`inputs` must be the pair source_ids \(B, S\), target_ids \(B, T\)."):
        small_model()(wrap(keras.Input((None,), dtype="int32")))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_drops_out_and_evaluate_and_predict_do_not(data, jit_compile):
    source_ids, target_ids, labels = data
    model = Transformer(V, **{**TINY, "dropout": 0.5, "attention_dropout": 0.5, "feed_forward_dropout": 0.5})
    model.compile(keras.optimizers.SGD(0.0), SmoothedCrossEntropy(0.0), jit_compile=jit_compile)
    batch = dict(x=(source_ids, target_ids), y=labels, batch_size=NUM_PAIRS, verbose=0)
    draws = [v for v in model.variables if "seed_generator" in v.path]
    assert len(draws) == 2 + 4 + 6  # sums of embeddings and positions, a block of the encoder, one of the decoder
    losses = [model.fit(**batch).history["loss"][0] for _ in range(2)]
    assert {int(draw.numpy()[1]) for draw in draws} == {2}
    evaluated = [model.evaluate(**batch) for _ in range(2)]
    model.predict((source_ids, target_ids), verbose=0)
    assert {int(draw.numpy()[1]) for draw in draws} == {2}
    assert len({*losses, *evaluated}) == 3


FIT_ON_TWO_REPLICAS = """
import keras
import numpy as np
from tests.devices import part
part()
from keras_transformer.training.strategy import make_strategy
from tests.test_keras_idioms import NUM_PAIRS, V, compiled

strategy = make_strategy("mirrored")
assert strategy.num_replicas_in_sync == 2
keras.utils.set_random_seed(1)
with strategy.scope():
    model = compiled()
ids = np.random.default_rng(1).integers(4, V, (NUM_PAIRS, 5))
history = model.fit((ids, ids), ids, batch_size=4, epochs=10, verbose=0).history
assert history["loss"][-1] < history["loss"][0] and history["nll"][-1] < history["nll"][0], history
for weight in model.trainable_variables:
    first, second = strategy.experimental_local_results(weight.value)
    assert np.array_equal(first, second), weight.path
"""


def test_fit_works_under_a_strategy():
    """In a process of its own: the collectives of two strategies in one process meet."""
    subprocess.run([sys.executable, "-c", FIT_ON_TWO_REPLICAS], cwd=Path(__file__).parents[1], check=True)


def test_metrics_without_weights_leave_padding_out_too(data):
    source_ids, target_ids, labels = data
    model = Transformer(V, **TINY)
    model.compile("sgd", SmoothedCrossEntropy(0.0), metrics=[NegativeLogLikelihood()], jit_compile=False)
    scores = model.evaluate((source_ids, target_ids), labels, batch_size=NUM_PAIRS, return_dict=True, verbose=0)
    assert scores["nll"] == pytest.approx(scores["loss"], rel=1e-5)


# --- mixed precision


def test_mixed_bfloat16_stays_near_float32():
    pairs = padded_pairs()
    model = small_model(norm="pre")
    mixed = small_model(norm="pre", dtype="mixed_bfloat16")
    logits, half = np.asarray(model(pairs)), mixed(pairs)
    assert half.dtype == "float32"
    assert 0 < np.abs(half - logits).max() < 0.05 * np.abs(logits).max()


def test_under_mixed_bfloat16_weights_are_float32_and_the_layers_compute_in_bfloat16():
    model = Transformer(V, **SMALL, dtype="mixed_bfloat16")
    assert {weight.dtype for weight in model.trainable_variables} == {"float32"}
    memory, _ = model.encode(padded_pairs()[0])
    assert memory.dtype == "bfloat16"
    assert {part.dtype.name for part in model.attention_maps(*padded_pairs())} == {"float32"}


@pytest.mark.parametrize("name", ["post", "learned"])
def test_under_mixed_bfloat16_positions_are_exact(monkeypatch, name):
    """The sum of embedding and position is rounded once, and neither of the two before."""

    def sums(dtype):
        model, seen = small_model(**VARIANTS[name], dtype=dtype), []
        for dropout in (model.source_dropout, model.target_dropout):
            monkeypatch.setattr(dropout, "call", lambda x, training=False: seen.append(x) or x)
        model(padded_pairs())
        return seen

    for exact, rounded in zip(sums("float64"), sums("mixed_bfloat16"), strict=True):
        assert rounded.dtype == "bfloat16"
        assert np.array_equal(rounded, tf.cast(tf.cast(exact, "float32"), "bfloat16"))


def test_under_a_global_half_precision_policy_every_way_into_the_model_agrees():
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = small_model(**VARIANTS["everything"])
    finally:
        keras.config.set_dtype_policy(previous)
    source_ids, target_ids = padded_pairs()
    parts = model.decode(target_ids, *model.encode(source_ids))
    assert np.array_equal(parts, model((source_ids, target_ids)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_any_default_of_keras_for_floats_will_do(dtype):
    before = keras.config.floatx()
    try:
        keras.config.set_floatx(dtype)
        logits = small_model().predict(padded_pairs(), verbose=0)
    finally:
        keras.config.set_floatx(before)
    assert logits.shape == (B, T, V) and np.isfinite(logits).all()


def test_what_would_quantize_nothing_is_refused():
    with pytest.raises(NotImplementedError, match="cannot be quantized"):
        small_model().quantize("int8")


def test_training_under_mixed_bfloat16_learns(data):
    source_ids, target_ids, labels = data
    model = compiled(dtype="mixed_bfloat16")
    losses = [float(model.train_on_batch((source_ids, target_ids), labels)[0]) for _ in range(11)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


# --- in a process of its own


def run_python(code, **variables):
    of_child = environment(Path(__file__).parents[1], TF_CPP_MIN_LOG_LEVEL="3", **variables)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=of_child, check=False)


def test_another_keras_backend_fails_clearly():
    # Keras itself is told a lie, because its other backends need packages that are not there.
    process = run_python("import keras; keras.backend.backend = lambda: 'jax'; import keras_transformer")
    assert process.returncode != 0
    assert "ImportError: keras_transformer needs Keras on its TensorFlow backend. Received: " in process.stderr
    assert "backend='jax'" in process.stderr and "KERAS_BACKEND=tensorflow" in process.stderr


def test_importing_the_package_is_cheap():
    heavy = ("tensorflow_datasets", "tensorflow_text", "sacrebleu", "matplotlib", "tensorflow_serving")
    # What Keras imports itself, matplotlib where it is installed, is not ours.
    code = "import sys, keras; before = set(sys.modules); import keras_transformer; new = set(sys.modules) - before"
    process = run_python(f"{code}; print(*sorted(set({heavy!r}) & new))")
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == []


@keras.saving.register_keras_serializable("tests")
class WithItsOwn(Transformer):
    """Has a layer behind the logits, a weight that scales what comes out, and a metric of that weight."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.head = keras.layers.Dense(V, name="head")
        self.head.build((None, V))
        self.tracker = keras.metrics.Mean(name="mine")

    def call(self, inputs, training=False):
        return self.head(super().call(inputs, training=training)) * self.scale

    def train_step(self, data):
        return {**super().train_step(data), "mine": self.tracker(self.scale)}


def test_a_subclass_may_have_layers_metrics_and_weights_of_its_own(tmp_path, data):
    model = WithItsOwn(V, **SMALL)
    model.compile(keras.optimizers.SGD(0.1), SmoothedCrossEntropy())
    source_ids, target_ids, labels = data
    history = model.fit((source_ids, target_ids), labels, verbose=0).history
    assert model.tracker in model.metrics and "mine" in history
    assert float(model.scale) != 1.0  # it learns
    model.save(tmp_path / "mine.keras")
    loaded = keras.saving.load_model(tmp_path / "mine.keras")
    ids = source_ids, target_ids
    np.testing.assert_array_equal(loaded.predict(ids, verbose=0), model.predict(ids, verbose=0))
