import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Perplexity, SmoothedCrossEntropy, TokenAccuracy
from keras_transformer.losses import cross_entropies, token_weights
from tests import reference

B, T, V = 3, 7, 31
PAD = 0
SMOOTHINGS = pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.2, 0.9])


@pytest.fixture
def labels(rng):
    labels = rng.integers(1, V, (B, T))
    labels[0, 5:] = labels[2, 2:] = PAD
    return labels


@pytest.fixture
def logits(rng):
    return rng.normal(scale=3, size=(B, T, V)).astype("float32")


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@SMOOTHINGS
def test_the_smoothed_loss_is_the_divergence_from_the_target_plus_the_entropy_of_the_target(
    labels, logits, label_smoothing
):
    target = (1 - label_smoothing) * np.eye(V)[labels] + label_smoothing / V  # q, Section 5.4
    with np.errstate(divide="ignore"):
        log_target = np.where(target > 0, np.log(target), 0)
    divergence = (target * (log_target - log_softmax(logits))).sum(-1)  # KL(q || p)
    entropy = -(target * log_target).sum(-1)  # H(q)
    smoothed, _ = cross_entropies(labels, logits, label_smoothing)
    assert np.allclose(smoothed, divergence + entropy, atol=1e-5)


@SMOOTHINGS
def test_the_smoothed_loss_is_that_of_the_reference(labels, logits, label_smoothing):
    smoothed, _ = cross_entropies(labels, logits, label_smoothing)
    assert np.allclose(smoothed, reference.smoothed_cross_entropy(logits, labels, label_smoothing), atol=1e-5)


def test_without_smoothing_it_is_plain_cross_entropy(labels, logits):
    expected = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    assert np.allclose(cross_entropies(labels, logits, 0.0), [expected, expected], atol=1e-5)


@SMOOTHINGS
def test_the_true_likelihood_stands_beside_it_whatever_the_smoothing(labels, logits, label_smoothing):
    _, nll = cross_entropies(labels, logits, label_smoothing)
    assert np.allclose(nll, -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0], atol=1e-5)


def test_the_loss_is_the_mean_over_the_tokens_that_are_not_padding(labels, logits):
    expected = reference.smoothed_cross_entropy(logits, labels, 0.1)[labels != PAD].mean()
    assert float(SmoothedCrossEntropy(0.1)(labels, logits)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sample_weight", [None, (B, T), (B, 1), (B,)])
def test_padding_has_no_weight_whatever_the_sample_weights_say(rng, labels, logits, sample_weight):
    given = None if sample_weight is None else rng.uniform(0.5, 2, sample_weight)
    weights = np.ones((B, T)) if given is None else np.broadcast_to(given.reshape(B, -1), (B, T))
    live = labels != PAD
    losses = reference.smoothed_cross_entropy(logits, labels, 0.1)
    expected = np.average(losses[live], weights=weights[live])
    assert float(SmoothedCrossEntropy(0.1)(labels, logits, given)) == pytest.approx(expected, rel=1e-5)
    other = np.where(live[..., None], logits, 17 * logits)  # nobody looks at what padding would predict
    assert float(SmoothedCrossEntropy(0.1)(labels, other, given)) == pytest.approx(expected, rel=1e-5)


def test_single_labels_have_a_weight_each(rng, labels, logits):
    labels, logits, weights = labels[:, 4], logits[:, 4], rng.uniform(0.5, 2, B)
    losses, live = reference.smoothed_cross_entropy(logits, labels, 0.1), labels != PAD
    expected = np.average(losses[live], weights=weights[live])
    assert float(SmoothedCrossEntropy(0.1)(labels, logits, weights)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("wrong", [lambda x: np.eye(V)[x], lambda x: x[..., None], lambda x: x[:, 1:]])
def test_labels_of_another_shape_are_refused(labels, logits, wrong):
    with pytest.raises(ValueError, match=r"must be ids of shape \(B, T\) beside logits \(B, T, V\)\. Received: \(3, "):
        SmoothedCrossEntropy()(wrong(labels), logits)


def test_a_batch_of_nothing_but_padding_costs_nothing(logits):
    assert float(SmoothedCrossEntropy()(np.zeros((B, T), int), logits)) == 0.0


def test_the_weight_of_a_label_is_one_unless_it_is_padding(labels):
    assert np.array_equal(token_weights(labels), labels != PAD)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_no_one_hot_target_is_made(label_smoothing):
    loss = SmoothedCrossEntropy(label_smoothing)
    signature = [tf.TensorSpec((B, T), "int32"), tf.TensorSpec((B, T, V), "float32")]
    operations = tf.function(loss, input_signature=signature).get_concrete_function().graph.get_operations()
    assert "OneHot" not in {operation.type for operation in operations}
    # Of the size of the logits are those themselves and what their log-sum-exp needs, but nothing made from the labels.
    made_from_labels = {operations[0].outputs[0].ref()}
    for operation in operations[2:]:
        if operation.type == "IdentityN":  # around a gradient that is written out: each output is one input
            pairs = zip(operation.inputs, operation.outputs, strict=True)
            made_from_labels |= {output.ref() for tensor, output in pairs if tensor.ref() in made_from_labels}
        elif any(tensor.ref() in made_from_labels for tensor in operation.inputs):
            made_from_labels |= {tensor.ref() for tensor in operation.outputs}
    assert len(made_from_labels) > 3
    assert all(ref.deref().shape.num_elements() != B * T * V for ref in made_from_labels)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_is_that_of_what_the_loss_is_made_of(rng, labels, logits, label_smoothing, xla):
    logits, weights = tf.constant(logits, tf.float64), rng.normal(size=(2, B, T))

    def written_out(logits):
        return cross_entropies(labels, logits, label_smoothing)

    def composed(logits):
        nll = tf.reduce_logsumexp(logits, axis=-1) - tf.gather(logits, labels, axis=-1, batch_dims=2)
        uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
        return (1 - label_smoothing) * nll + label_smoothing * uniform, nll

    def gradient(losses):
        @tf.function(jit_compile=xla, autograph=False)
        def by_logits(logits):
            with tf.GradientTape() as tape:
                tape.watch(logits)
                both = losses(logits)
            return tape.gradient(both, logits, output_gradients=list(weights))

        return by_logits(logits)

    np.testing.assert_allclose(gradient(written_out), gradient(composed), atol=1e-12)


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_gradient_has_the_gradient_of_a_softmax(rng, labels, logits, label_smoothing, xla):
    logits, weights, direction = tf.constant(logits, tf.float64), rng.normal(size=(B, T)), rng.normal(size=(B, T, V))

    @tf.function(jit_compile=xla, autograph=False)
    def curvature(logits):  # the Hessian of the weighted loss, times a vector
        with tf.GradientTape() as outer:
            outer.watch(logits)
            with tf.GradientTape() as tape:
                tape.watch(logits)
                smoothed, _ = cross_entropies(labels, logits, label_smoothing)
                loss = tf.reduce_sum(weights * smoothed)
            slope = tf.reduce_sum(direction * tape.gradient(loss, logits))
        return outer.gradient(slope, logits)

    softmax = np.exp(log_softmax(logits))
    centred = direction - (softmax * direction).sum(-1, keepdims=True)
    np.testing.assert_allclose(curvature(logits), weights[..., None] * softmax * centred, atol=1e-12)


@pytest.mark.parametrize("xla", [False, True])
def test_of_the_forward_pass_only_the_logits_are_kept(labels, logits, xla):
    @tf.function(jit_compile=xla, autograph=False)
    def gradient(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            smoothed, _ = cross_entropies(labels, logits, 0.1)
        return tape.gradient(smoothed, logits)

    operations = gradient.get_concrete_function(tf.constant(logits)).graph.get_operations()
    exponentials = [operation for operation in operations if operation.type == "Exp"]
    readers = [{reader.type for reader in operation.outputs[0].consumers()} for operation in exponentials]
    *summed, of_gradient = readers  # of the logits less their greatest, and less their log-sum-exp
    assert summed and all(kinds and kinds <= {"AddN", "Sum"} for kinds in summed) and not of_gradient & {"AddN", "Sum"}


@pytest.mark.parametrize("xla", [False, True])
def test_a_label_of_minus_one_that_has_no_weight_changes_nothing(labels, logits, xla):
    weights = np.ones((B, T), "float32")
    weights[0, 1] = 0.0

    @tf.function(jit_compile=xla, autograph=False)
    def loss_and_gradient(labels, logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = SmoothedCrossEntropy()(labels, logits, weights)
        return loss, tape.gradient(loss, logits)

    ignored = np.array(labels)
    ignored[0, 1] = 3
    expected = loss_and_gradient(ignored, logits)
    ignored[0, 1] = -1
    for got, wanted in zip(loss_and_gradient(ignored, logits), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-7)


@pytest.mark.parametrize("label", [-1, -100])
def test_a_negative_label_has_no_weight(labels, logits, label):
    padded, negative = np.array(labels), np.array(labels)
    padded[1, 2], negative[1, 2] = 0, label
    assert token_weights(negative)[1, 2] == 0
    assert np.all(np.isfinite(cross_entropies(negative, logits, 0.1)))
    for figure in (SmoothedCrossEntropy(), Perplexity(), TokenAccuracy()):
        np.testing.assert_array_equal(figure(negative, logits), figure(padded, logits))


@pytest.mark.parametrize("label", [V, V + 500])
def test_a_label_that_is_no_id_of_the_model_gives_no_number(labels, logits, label):
    labels = labels.copy()
    labels[0, 0] = label
    found = tf.function(cross_entropies, jit_compile=True)(labels, logits, 0.1)
    for values in found:
        assert np.isnan(values[0, 0]) and np.isfinite(values[1]).all()


def test_symbols_and_unknown_sizes_are_taken():
    assert SmoothedCrossEntropy()(keras.Input((3,)), keras.Input((3, 5))).shape == ()
    loss = tf.function(
        SmoothedCrossEntropy(), input_signature=[tf.TensorSpec((None, None), "int32"), tf.TensorSpec(3 * [None])]
    )
    assert float(loss(np.ones((2, 3), "int32"), np.zeros((2, 3, 5), "float32"))) == pytest.approx(np.log(5))


@pytest.mark.parametrize(("dtype", "computed"), [("bfloat16", "float32"), ("float32", "float32"), ("float64",) * 2])
def test_it_is_computed_in_float32_or_more(labels, logits, dtype, computed):
    assert {part.dtype.name for part in cross_entropies(labels, tf.cast(logits, dtype), 0.1)} == {computed}


@pytest.mark.parametrize("floats", ["mixed_bfloat16", "bfloat16", "float16"])
def test_a_large_id_is_not_rounded_where_keras_has_half_precision(floats):
    labels = np.array([[8011]])  # between two numbers of bfloat16, and of float16
    logits = tf.one_hot(labels, 8017, on_value=30.0)
    before = keras.config.dtype_policy(), keras.config.floatx()
    try:
        if floats.startswith("mixed"):
            keras.config.set_dtype_policy(floats)
        else:
            keras.config.set_floatx(floats)
        loss = SmoothedCrossEntropy(0.0)(labels, logits)
    finally:
        keras.config.set_dtype_policy(before[0])
        keras.config.set_floatx(before[1])
    assert loss.dtype == "float32" and float(loss) < 1e-6


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_logits_of_any_size_give_a_finite_loss(labels, size):
    assert np.isfinite(SmoothedCrossEntropy(0.1)(labels, np.full((B, T, V), size, "float32")))


def test_other_reductions_of_keras_work(labels, logits):
    losses = reference.smoothed_cross_entropy(logits, labels, 0.1) * (labels != PAD)
    assert float(SmoothedCrossEntropy(reduction="sum")(labels, logits)) == pytest.approx(losses.sum(), rel=1e-5)
    assert np.allclose(SmoothedCrossEntropy(reduction=None)(labels, logits), losses, atol=1e-5)


def test_serialisation_keeps_every_argument():
    loss = SmoothedCrossEntropy(0.3, reduction="sum", name="smoothed", dtype="float64")
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    expected = {"name": "smoothed", "reduction": "sum", "dtype": "float64", "label_smoothing": 0.3}
    assert restored.get_config() == loss.get_config() == expected


@pytest.mark.parametrize("label_smoothing", [-0.1, 1.0, 1.5])
def test_a_share_that_is_none_is_refused(label_smoothing):
    with pytest.raises(ValueError, match=f"less than 1. Received: {label_smoothing}."):
        SmoothedCrossEntropy(label_smoothing)
