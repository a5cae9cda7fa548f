import contextlib
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.fast import kept_panels, products_by_xla
from keras_transformer.fast.kept_panels import Cut, KeptPanels
from keras_transformer.fast.products import use_products
from keras_transformer.fast.products_by_xla import COLUMNS, xla_panels, xla_products
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.embedding import TokenEmbedding
from tests.fast.kernels import D

pytestmark = pytest.mark.cpu  # nothing is kept on a GPU


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(products_by_xla, "THREADS", 2)


@pytest.fixture
def dense():
    layer = Dense(2 * COLUMNS + 5)
    layer.build((None, D))
    return layer


@pytest.fixture
def vocabulary():
    layer = TokenEmbedding(71, D)
    layer.build()
    return layer


@pytest.fixture
def cut(monkeypatch):
    """The layers whose panels have been cut, one group after the other."""
    groups = []
    monkeypatch.setattr(kept_panels, "xla_panels", lambda layers: groups.append(layers) or xla_panels(layers))
    return groups


def assert_kept(panels, *groups):
    for layers in groups:
        for kept, expected in zip(panels.of(layers), xla_panels(layers), strict=True):
            np.testing.assert_array_equal(kept, expected)


def test_what_is_kept_are_the_panels_of_every_layer(dense, vocabulary):
    panels = KeptPanels([(dense,), (vocabulary,)])
    assert panels.of((dense,)) is None
    panels.refresh()
    assert_kept(panels, (dense,), (vocabulary,))


def test_panels_are_cut_once_as_long_as_nothing_changes(dense, vocabulary, cut):
    panels = KeptPanels([(dense,), (vocabulary,)])
    for _ in range(3):
        panels.refresh()
    assert cut == [(dense,), (vocabulary,)]


def test_only_a_kernel_that_has_changed_is_cut_again(dense, vocabulary, cut):
    panels = KeptPanels([(dense,), (vocabulary,)])
    panels.refresh()
    vocabulary.embeddings.assign(vocabulary.embeddings * 2.0)
    dense.bias.assign(dense.bias + 1.0)
    panels.refresh()
    assert cut == [(dense,), (vocabulary,), (vocabulary,)]
    assert_kept(panels, (dense,), (vocabulary,))


def test_panels_of_which_a_cut_was_interrupted_are_cut_by_the_next(dense, monkeypatch):
    panels = KeptPanels([(dense,)])
    panels.refresh()
    dense.kernel.assign(dense.kernel * 2.0)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(kept_panels, "xla_panels", interrupted)
        panels.refresh()
    panels.refresh()
    assert_kept(panels, (dense,))


def interrupted(layers):
    raise KeyboardInterrupt


def test_kernels_that_lie_side_by_side_are_cut_again_when_one_of_them_has_changed(dense, cut):
    other = Dense(COLUMNS)
    other.build((None, D))
    panels, layers = KeptPanels([(dense, other)]), (dense, other)
    for times, kernel in enumerate((dense.kernel, other.kernel, dense.kernel), start=1):
        panels.refresh()
        panels.refresh()
        assert cut == [layers] * times
        assert_kept(panels, layers)
        kernel.assign(kernel * 2.0)


def test_a_kernel_of_which_rows_were_written_is_cut_once_more_and_no_more(vocabulary, cut):
    panels = KeptPanels([(vocabulary,)])
    for times in (1, 2, 3):
        panels.refresh()
        panels.refresh()
        assert cut == [(vocabulary,)] * times
        vocabulary.embeddings.value.scatter_nd_add([[1]], tf.ones((1, D)))  # from here on reading copies


def adam(kernel):
    """As `fit` changes weights."""
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build([kernel])
    return lambda: optimizer.apply([tf.ones_like(kernel)], [kernel])


CHANGES = {
    "assign": lambda kernel: lambda: kernel.assign(kernel * 2.0),
    "assign_add": lambda kernel: lambda: kernel.value.assign_add(tf.ones_like(kernel)),
    "rows": lambda kernel: lambda: kernel.value[:2].assign(kernel.value[:2] + 1.0),
    "scattered": lambda kernel: lambda: kernel.value.scatter_nd_add([[1]], tf.ones((1, kernel.shape[1]))),
    "in place": lambda kernel: (
        lambda: tf.raw_ops.ResourceApplyGradientDescent(var=kernel.value.handle, alpha=0.1, delta=tf.ones_like(kernel))
    ),
    "adam": adam,
}


@pytest.mark.parametrize("how", ["eager", "graph", "xla"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("which", ["dense", "vocabulary"])
def test_no_change_of_a_kernel_goes_unseen(request, which, change, how):
    layer = request.getfixturevalue(which)
    panels, change_it = KeptPanels([(layer,)]), change(layer.kernel)

    def run():
        change_it()  # may give an operation, which a `tf.function` may not

    if how != "eager":
        run = tf.function(run, jit_compile=how == "xla", autograph=False)
    panels.refresh()
    for _ in range(4):  # the memory of an earlier value may have become free
        before = np.array(layer.kernel)
        run()
        assert (np.array(layer.kernel) != before).any()
        panels.refresh()
        assert_kept(panels, (layer,))


def test_a_program_has_the_panels_of_today(dense):
    panels = KeptPanels([(dense,)])
    panels.refresh()
    x = tf.random.normal((1, 3, D))

    @tf.function(jit_compile=True, autograph=False)
    def program(x):
        with use_products(xla_products([dense], panels.of((dense,)))):
            return dense(x)

    np.testing.assert_allclose(program(x), dense(x), atol=1e-5)
    dense.kernel.assign(dense.kernel * -3.0)
    panels.refresh()
    np.testing.assert_allclose(program(x), dense(x), atol=1e-5)
    assert program.experimental_get_tracing_count() == 1


def test_a_product_does_not_cut_what_is_kept(dense, monkeypatch):
    panels = KeptPanels([(dense,)])
    panels.refresh()
    for cutting in ("to_panels", "in_rows"):
        monkeypatch.setattr(products_by_xla, cutting, lambda *args: pytest.fail("cut again"))
    with use_products(xla_products([dense], panels.of((dense,)))):
        dense(tf.ones((1, 3, D)))
    with pytest.raises(pytest.fail.Exception), use_products(xla_products([dense])):
        dense(tf.ones((1, 3, D)))


@pytest.mark.parametrize("kind", ["bfloat16", "replicated"])
def test_nothing_is_kept_of_a_kernel_without_an_address(kind):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"]) if kind == "replicated" else tf.distribute.get_strategy()
    with strategy.scope():
        layer = Dense(71, dtype="bfloat16" if kind == "bfloat16" else "float32")
        layer.build((None, D))
    panels = KeptPanels([(layer,)])
    panels.refresh()
    assert panels.of((layer,)) is None


def test_under_mixed_precision_panels_have_the_dtype_of_the_products():
    layer = Dense(71, dtype="mixed_bfloat16")
    layer.build((None, D))
    panels = KeptPanels([(layer,)])
    panels.refresh()
    assert {array.dtype for array in panels.of((layer,))} == {tf.bfloat16}
    assert_kept(panels, (layer,))


def test_two_threads_that_begin_at_once_make_the_same_panels(dense, monkeypatch):
    together = threading.Barrier(2)

    def slowly(layers):
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(timeout=0.5)  # for the other one, were it here as well
        return xla_panels(layers)

    monkeypatch.setattr(kept_panels, "xla_panels", slowly)
    panels, seen = KeptPanels([(dense,)]), []

    def begin():
        panels.refresh()
        seen.append(panels._panels[dense,])

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] is seen[1]


def test_a_kernel_that_is_no_variable_is_not_kept(dense):
    """Of a layer with LoRA it is a sum. Where it was kept before, a program has the kernel that was there."""
    before, after = KeptPanels([(dense,)]), KeptPanels([(dense,)])
    before.refresh()
    dense.enable_lora(2)
    for _ in range(2):
        after.refresh()
        assert after.of((dense,)) is None
        with pytest.raises(ValueError, match="Make a new Translator"):
            before.refresh()


def test_a_cut_is_of_one_value_of_one_variable(dense):
    cut, other = Cut.of(dense.kernel), keras.Variable(np.ones((D, 3)))
    assert cut.is_still(dense.kernel) and not cut.is_still(other)
    assert Cut.of(dense.kernel).address == cut.address != Cut.of(other).address
    dense.kernel.assign(dense.kernel + 0.0)
    assert not cut.is_still(dense.kernel)
    assert Cut.of(tf.ones((D, 3))) is None
