import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import TransformerSchedule


def rate_of_step(step, d_model, warmup_steps):
    """Equation 3; steps count from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@pytest.mark.parametrize("step", [1, 2, 3999, 4000, 4001, 100_000, 300_000])
def test_the_rate_of_a_step_is_equation_3(step):
    rate = TransformerSchedule(512)(step - 1)  # Keras's iterations count from 0
    assert float(rate) == pytest.approx(rate_of_step(step, 512, 4000), rel=1e-5)


def test_the_first_step_already_learns():
    assert float(TransformerSchedule(512)(0)) == pytest.approx(512**-0.5 * 4000**-1.5, rel=1e-5)


def test_the_peak_is_at_the_last_step_of_the_warmup():
    schedule = TransformerSchedule(26, warmup_steps=37)
    rates = [float(schedule(iteration)) for iteration in range(101)]
    assert int(np.argmax(rates)) + 1 == 37
    assert max(rates) == pytest.approx((26 * 37) ** -0.5, rel=1e-5)
    assert np.all(np.diff(rates[:37]) > 0) and np.all(np.diff(rates[36:]) < 0)


@pytest.mark.parametrize(
    "iteration", [5, np.int64(5), tf.constant(5, "int32"), tf.constant(5, "int64"), tf.Variable(5)]
)
def test_the_iteration_may_be_any_integer(iteration):
    assert float(TransformerSchedule(26, 37)(iteration)) == pytest.approx(rate_of_step(6, 26, 37), rel=1e-5)


def test_the_scale_is_a_factor_on_the_whole():
    assert float(TransformerSchedule(26, 37, scale=0.3)(10)) == pytest.approx(0.3 * rate_of_step(11, 26, 37), rel=1e-5)


def test_under_accumulation_a_step_is_a_real_update():
    rates = [float(TransformerSchedule(26, 37, accumulation=3)(micro_batch)) for micro_batch in range(9)]
    assert rates == pytest.approx([rate_of_step(step, 26, 37) for step in (1, 1, 1, 2, 2, 2, 3, 3, 3)], rel=1e-5)


def test_the_cooldown_is_a_straight_line_to_zero_after_the_last_step():
    plain, schedule = TransformerSchedule(26, 5), TransformerSchedule(26, 5, steps=40, cooldown_steps=10)
    factors = [float(schedule(iteration) / plain(iteration)) for iteration in range(43)]
    expected = [1.0] * 30 + [remaining / 10 for remaining in range(10, 0, -1)] + [0.0] * 3
    assert factors == pytest.approx(expected, abs=1e-5)


def test_the_cooldown_counts_what_was_skipped_and_the_schedule_does_not():
    plain, schedule = TransformerSchedule(26, 5), TransformerSchedule(26, 5, steps=40, cooldown_steps=10)
    for iteration, skipped in ((0, 3), (31, 0), (31, 3), (31, 30)):
        late = min(iteration + skipped, 42)
        factor = float(schedule(late) / plain(late))
        assert float(schedule(iteration, skipped)) == pytest.approx(factor * float(plain(iteration)), rel=1e-5)


def test_under_accumulation_the_cooldown_counts_updates():
    plain = TransformerSchedule(26, 5, accumulation=3)
    schedule = TransformerSchedule(26, 5, accumulation=3, steps=4, cooldown_steps=2)
    factors = [float(schedule(micro_batch) / plain(micro_batch)) for micro_batch in range(15)]
    assert factors == pytest.approx([1.0] * 9 + [0.5] * 3 + [0.0] * 3, abs=1e-5)


@pytest.mark.parametrize("steps, cooldown_steps", [(None, 5), (10, 11), (10, -1)])
def test_a_cooldown_longer_than_the_training_is_refused(steps, cooldown_steps):
    with pytest.raises(ValueError, match=f"Received: cooldown_steps={cooldown_steps}, steps={steps}."):
        TransformerSchedule(26, steps=steps, cooldown_steps=cooldown_steps)


@pytest.mark.parametrize(
    "wrong", [dict(d_model=0), dict(warmup_steps=0), dict(warmup_steps=-3), dict(accumulation=0), dict(scale=-1.0)]
)
def test_what_gives_no_rate_is_refused(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ValueError, match=f"must be positive. Received: {name}={value}."):
        TransformerSchedule(**{"d_model": 26, **wrong})


def test_serialisation_keeps_every_argument():
    schedule = TransformerSchedule(26, warmup_steps=37, scale=0.3, accumulation=5, steps=90, cooldown_steps=60)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert restored.get_config() == schedule.get_config()
    assert float(restored(41)) == float(schedule(41))


@pytest.mark.parametrize("accumulation", [None, 3])
def test_an_optimizer_takes_the_rate_of_equation_3_at_every_update(accumulation):
    schedule = TransformerSchedule(26, warmup_steps=5, accumulation=accumulation or 1)
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=accumulation)
    weight = keras.Variable([0.0])
    optimizer.build([weight])
    moves, before = [], 0.0
    for _ in range(7 * (accumulation or 1)):
        optimizer.apply([keras.ops.ones((1,))], [weight])
        after = float(weight.numpy()[0])
        moves, before = [*moves, before - after], after
    updates = moves[(accumulation or 1) - 1 :: accumulation or 1]
    assert updates == pytest.approx([rate_of_step(step, 26, 5) for step in range(1, 8)], rel=1e-4)
    assert np.count_nonzero(moves) == len(updates) == 7  # nothing moves between updates
