"""The training step: one update whatever the number of replicas and micro-batches; all of it or none of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import TrainConfig, Transformer, TransformerSchedule
from keras_transformer.data.batches import ELEMENT_SPEC
from keras_transformer.fast import gradients, xla
from keras_transformer.losses import cross_entropies
from keras_transformer.training.step import Trainee
from keras_transformer.training.strategy import distribute, make_strategy
from tests.training.batches import dataset, random_batches

SMALL = dict(d_model=16, d_ff=31, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(value) for name, value in logs.items()})


def run(batches, strategy="one_device", dropout=0.0, tied_embeddings="all", **train):
    """Trains a small model on the batches -> weights and averages, logs, the trainee."""
    strategy = make_strategy(strategy)
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = Transformer(53, dropout=dropout, tied_embeddings=tied_embeddings, **SMALL)
        trainee = Trainee(model, TrainConfig(**{"warmup_steps": 400, "xla": False, **train}))
    recorder = Recorder()
    data = distribute(dataset(batches), strategy)
    trainee.fit(data, steps_per_epoch=len(batches), epochs=1, shuffle=False, verbose=0, callbacks=[recorder])
    weights = [v.numpy() for v in [*model.trainable_variables, *trainee.ema]]
    return weights, recorder.logs, trainee


def distance(a, b):
    return max(np.abs(x - y).max() for x, y in zip(a, b, strict=True))


EXACT = dict(clip_norm=0.5, ema_decay=0.9)
# Adam divides a gradient by its own size, so where one almost cancels, rounding decides a share of its update, 3e-4 in
# four steps; where that is depends on the processor. A token less moves the weights by 3.7e-4.
ROUNDING = 5e-6


@pytest.fixture(scope="module")
def one_large_batch():
    return run(random_batches(4), xla=True, **EXACT)


@pytest.mark.parametrize(
    "strategy, accumulation, xla", [("one_device", 2, False), ("mirrored", 1, False), ("mirrored", 2, True)]
)
def test_replicas_and_micro_batches_make_the_update_of_one_large_batch(one_large_batch, strategy, accumulation, xla):
    weights, logs, _ = run(random_batches(4), strategy, accumulation=accumulation, xla=xla, **EXACT)
    assert distance(weights, one_large_batch[0]) < ROUNDING
    for ours, theirs in zip(logs, one_large_batch[1], strict=True):
        assert ours["tokens"] == theirs["tokens"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-6)
        # Adam and clipping would hide a factor on all gradients.
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-5)


def test_replicas_make_the_same_update_of_muon():
    alone, _, _ = run(random_batches(4), optimizer="muon", **EXACT)
    together, _, trainee = run(random_batches(4), "mirrored", accumulation=2, xla=True, optimizer="muon", **EXACT)
    assert distance(alone, together) < ROUNDING
    for variable in [*trainee.transformer.trainable_variables, *trainee.optimizer.variables]:
        first, second = trainee.distribute_strategy.experimental_local_results(variable.value)
        np.testing.assert_array_equal(first, second, err_msg=variable.path)


def test_the_weights_of_a_step_share_the_powers_of_beta():
    batches = random_batches(1)
    _, _, trainee = run(batches, **EXACT)
    step = tf.function(lambda batch: trainee.distribute_strategy.run(trainee.train_step, args=(batch,)))
    graph = step.get_concrete_function(batches[0]).graph.as_graph_def()
    functions = [[node.op for node in function.node_def] for function in graph.library.function]
    [update] = [operations for operations in functions if "ResourceApplyAdam" in operations]
    assert update.count("ResourceApplyAdam") == len(trainee.transformer.trainable_variables)
    assert update.count("Pow") == 2 + 1  # and the schedule's


def test_a_token_less_would_be_seen(one_large_batch):
    batches = random_batches(4)
    batches[0].weights[np.nonzero(batches[0].weights)[0][0], 0] = 0.0
    weights, _, _ = run(batches, **EXACT)
    assert distance(weights, one_large_batch[0]) > 20 * ROUNDING


def test_the_step_without_xla_agrees_with_the_compiled_one(one_large_batch):
    weights, _, _ = run(random_batches(4), **EXACT)
    assert distance(weights, one_large_batch[0]) < ROUNDING


@pytest.mark.parametrize("tied_embeddings", ["all", "none"])
def test_a_deterministic_gpu_has_nothing_that_it_would_make_one_by_one(monkeypatch, tied_embeddings):
    batches, options = random_batches(4), {"xla": True, "deterministic": True, **EXACT}
    expected, _, _ = run(batches, tied_embeddings=tied_embeddings, **options)
    for module in xla, gradients:
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    weights, _, trainee = run(batches, tied_embeddings=tied_embeddings, **options)
    assert distance(weights, expected) < ROUNDING
    program = trainee._passes[0].experimental_get_compiler_ir(batches[0], tf.constant(1.0))("hlo")
    assert " dot(" in program and " scatter(" not in program


PLAIN = {
    "adam": lambda rate: keras.optimizers.Adam(rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
    "muon": lambda rate: keras.optimizers.Muon(
        rate, adam_beta_1=0.9, adam_beta_2=0.98, epsilon=1e-9, weight_decay=None, adam_weight_decay=None
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_the_step_agrees_with_plain_keras_on_the_token_mean(name):
    batches = random_batches(3)
    weights, _, trainee = run(batches, optimizer=name)
    keras.utils.set_random_seed(3)
    model = Transformer(53, dropout=0.0, **SMALL)
    optimizer = PLAIN[name](trainee.optimizer._learning_rate)
    for inputs, labels, token_weights in batches:
        with tf.GradientTape() as tape:
            smoothed, _ = cross_entropies(labels, model(inputs, training=True), 0.1)
            loss = tf.reduce_sum(smoothed * token_weights) / tf.reduce_sum(token_weights)
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
    assert distance(weights, [v.numpy() for v in model.trainable_variables]) < ROUNDING


@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
def test_an_infinity_in_one_replica_changes_nothing_anywhere(strategy):
    good = random_batches(3)
    bad = random_batches(1, seed=1)[0]
    bad.weights[-1, 0] = np.inf  # a row of the last replica
    weights, logs, trainee = run([*good[:2], bad, good[2]], strategy, **EXACT)
    expected, _, _ = run(good, strategy, **EXACT)
    assert distance(weights, expected) == 0.0
    assert [log["skipped"] for log in logs] == [0, 0, 1, 0]
    assert int(trainee.num_skipped.numpy()) == 1
    assert int(trainee.optimizer.iterations.numpy()) == 3


def test_a_cooldown_ends_with_the_run_whatever_was_skipped():
    good, bad = random_batches(3), random_batches(1, seed=1)[0]
    bad.weights[0, 0] = np.inf
    before, _, _ = run(good[:2])
    full, _, _ = run(good)
    half, logs, _ = run(
        [*good[:2], bad, bad, good[2]], steps=6, cooldown_steps=4
    )  # its last two steps have 1/2 and 1/4
    assert [log["skipped"] for log in logs] == [0, 0, 1, 1, 0]
    for start, whole, part in zip(before, full, half, strict=True):
        np.testing.assert_allclose(part - start, 0.5 * (whole - start), atol=1e-7)
    assert distance(before, full) > 1e-5


def test_a_batch_of_nothing_but_padding_is_skipped():
    empty = random_batches(1)[0]
    for part in (empty.inputs.source_ids, empty.inputs.target_ids, empty.labels, empty.weights):
        part[...] = 0
    _, logs, trainee = run([empty])
    assert logs[0]["skipped"] == 1 and int(trainee.optimizer.iterations.numpy()) == 0


def test_gradients_are_clipped_to_the_global_norm_after_the_reduction():
    batches = random_batches(1)
    unclipped, logs, _ = run(batches, clip_norm=None)
    norm = logs[0]["gradient_norm"]
    loosely, _, _ = run(batches, clip_norm=2 * norm)
    assert distance(unclipped, loosely) == 0.0
    _, _, trainee = run(batches, clip_norm=norm / 7)
    momentums = [m.numpy() for m in trainee.optimizer._momentums]  # (1 - 0.9) * gradient after one update
    assert np.sqrt(sum(np.sum(m**2) for m in momentums)) == pytest.approx(0.1 * norm / 7, rel=1e-5)


def test_the_moving_average_follows_its_formula():
    batches = random_batches(2)
    (first, _, _), (second, _, _) = run(batches[:1], ema_decay=0.9), run(batches, ema_decay=0.9)
    half = len(second) // 2
    keras.utils.set_random_seed(3)
    start = [v.numpy() for v in Transformer(53, dropout=0.0, **SMALL).trainable_variables]
    for w0, w1, w2, average in zip(start, first[:half], second[:half], second[half:], strict=True):
        after_one = 0.1 * w0 + 0.9 * w1  # min(0.9, (1 + 0) / (10 + 0))
        expected = (2 / 11) * after_one + (9 / 11) * w2
        np.testing.assert_allclose(average, expected, atol=1e-6)


def test_the_moving_average_of_a_weight_that_stays_is_the_weight():
    _, _, trainee = run(random_batches(4), ema_decay=0.9, learning_rate_scale=1e-30)
    for variable, average in zip(trainee.transformer.trainable_variables, trainee.ema, strict=True):
        np.testing.assert_allclose(average, variable, rtol=0, atol=1e-30)


def test_the_optimizer_has_the_schedule_of_the_configuration():
    _, _, trainee = run(random_batches(1), warmup_steps=3, learning_rate_scale=0.5, steps=20, cooldown_steps=10)
    expected = TransformerSchedule(SMALL["d_model"], 3, scale=0.5, steps=20, cooldown_steps=10)
    assert trainee.schedule.get_config() == expected.get_config()
    assert float(trainee.optimizer.learning_rate) == pytest.approx(float(expected(1)))


def test_the_step_is_traced_once_whatever_the_shapes():
    batches = random_batches(2) + random_batches(2, source_length=11, target_length=3)
    _, _, trainee = run(batches, xla=True)
    assert trainee._passes[0].experimental_get_tracing_count() == 1


@pytest.mark.parametrize("xla", [False, True])
def test_kernels_gradients_are_left_to_tensorflow_where_xla_would_make_them_on_a_cpu(xla):
    _, _, trainee = run(random_batches(1), xla=xla)
    factored, _ = trainee._passes[0](random_batches(1)[0], tf.constant(1.0))
    variables = trainee.transformer.trainable_variables
    kernels = [place for place, v in enumerate(variables) if v.path.endswith(("kernel", "embeddings"))]
    by_tensorflow = xla and not tf.config.list_logical_devices("GPU")
    assert sorted(factored.rights) == (kernels if by_tensorflow else [])
    rows = [place for place, x in factored.made.items() if isinstance(x, tf.IndexedSlices)]
    assert [variables[place].path.split("/")[-1] for place in rows] == (["embeddings"] if by_tensorflow else [])


def test_warming_up_changes_nothing():
    batches = random_batches(2)
    expected, _, _ = run(batches, dropout=0.3)
    keras.utils.set_random_seed(3)
    model = Transformer(53, dropout=0.3, **SMALL)
    trainee = Trainee(model, TrainConfig(warmup_steps=400, xla=False))
    trainee.warm_up([(8, 7, 5), (8, 3, 2)])
    assert trainee._passes[0].experimental_get_tracing_count() == 1
    trainee.fit(dataset(batches), steps_per_epoch=2, epochs=1, shuffle=False, verbose=0)
    assert distance(expected, [v.numpy() for v in model.trainable_variables]) == 0.0


def test_warming_up_runs_a_batch_of_every_shape_the_largest_first(monkeypatch):
    ran = []

    def run_sums(trainee, batch):
        ran.append((*batch.inputs.source_ids.shape, batch.labels.shape[1]))

    monkeypatch.setattr(Trainee, "_run_sums", run_sums)
    trainee = Trainee(Transformer(53, **SMALL), TrainConfig(xla=False))
    trainee.warm_up([(8, 3, 2), (8, 7, 5), (4, 9, 11)])
    assert ran == [(8, 7, 5), (4, 9, 11), (8, 3, 2)]


def test_the_whole_batch_reaches_the_replicas_row_by_row():
    batch = random_batches(1)[0]
    strategy = make_strategy("mirrored")
    parts = next(iter(distribute(dataset([batch]), strategy)))
    rows = [x.numpy() for x in strategy.experimental_local_results(parts[1])]
    assert len(rows) == 2
    np.testing.assert_array_equal(np.concatenate(rows), batch.labels)


def test_a_batch_has_the_structure_that_the_step_is_compiled_for():
    tf.nest.assert_same_structure(random_batches(1)[0], ELEMENT_SPEC)


def test_the_policy_that_keras_has_for_others_changes_nothing():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        trainee = Trainee(Transformer(53, dtype="float32", **SMALL), TrainConfig(ema_decay=0.9, xla=False))
    finally:
        keras.config.set_dtype_policy(before)
    assert not isinstance(trainee.optimizer, keras.optimizers.LossScaleOptimizer)
    assert {variable.dtype for variable in trainee.ema} == {"float32"}
