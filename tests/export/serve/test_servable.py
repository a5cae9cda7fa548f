import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from export.serve import RequestError
from export.serve.batching import BatchSettings
from export.serve.servable import Servable, Signature
from export.serve.tensors import Spec


class Picky(tf.Module):
    """A signature that fails for some inputs, and one whose output has the size of the longest row."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "number")])
    def refuse_13(self, number):
        with tf.control_dependencies([tf.debugging.assert_none_equal(number, tf.constant(13, tf.int64))]):
            return {"number": tf.identity(number)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, "ids")])
    def ids(self, ids):
        return {"ids": ids}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, module = tmp_path_factory.mktemp("picky") / "4", Picky()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.refuse_13, "ids": module.ids})
    return folder


@pytest.fixture(scope="module")
def servable(folder):
    with ThreadPoolExecutor(1) as executor:
        yield Servable(folder, executor, BatchSettings())


def test_a_servable_knows_its_version_and_signatures(servable):
    assert servable.version == 4 and servable.signatures.keys() == {"serving_default", "ids"}
    assert str(servable.signature("serving_default").inputs["number"]) == "int64 [?]"


def test_only_rows_of_one_size_share_a_call(servable):
    assert servable.signature("serving_default").merges
    assert not servable.signature("ids").merges


def test_an_answer_that_is_as_wide_as_its_longest_row_is_not_shared():
    text, ids = Spec(np.dtype(object), (None,)), Spec(np.dtype(np.int32), (None, None))
    assert Signature({"text": text}, {"text": text}).merges
    assert not Signature({"text": text}, {"text": text, "ids": ids}).merges
    assert not Signature({"text": text, "ids": ids}, {"text": text}).merges


def test_a_call_for_which_there_is_no_memory_is_no_fault_of_the_request():
    def run_out():
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    servable = Servable.__new__(Servable)
    servable._loaded = SimpleNamespace(signatures={"large": run_out})
    servable.signature_defs = {"large": SimpleNamespace(inputs={})}
    with pytest.raises(RequestError, match="OOM") as caught:
        servable._caller("large")({})
    assert caught.value.status == 429


def test_a_signature_that_is_not_there_is_a_bad_request(servable):
    for name in ("other", "__saved_model_init_op"):
        with pytest.raises(RequestError, match=f'"{name}" not found in signature def') as caught:
            servable.signature(name)
        assert caught.value.status == 400


def test_an_assertion_of_the_graph_is_a_bad_request_of_its_own(servable):
    async def ask():
        asked = (servable.predict("serving_default", {"number": np.array([n])}) for n in (12, 13, 14))
        return await asyncio.gather(*asked, return_exceptions=True)

    first, wrong, last = asyncio.run(ask())
    assert first["number"].tolist() == [12] and last["number"].tolist() == [14]
    assert isinstance(wrong, RequestError) and wrong.status == 400


def test_no_rows_are_no_rows(servable):
    answer = asyncio.run(servable.predict("serving_default", {"number": np.array([], np.int64)}))
    assert answer["number"].shape == (0,)


def test_a_folder_without_a_model_cannot_be_loaded(tmp_path):
    (tmp_path / "1").mkdir()
    with ThreadPoolExecutor(1) as executor, pytest.raises(OSError, match="saved_model.pb"):
        Servable(tmp_path / "1", executor, BatchSettings())


def test_it_multiplies_in_float32_on_a_gpu(folder, gpus):
    gpus.append("a GPU")
    with ThreadPoolExecutor(1) as executor:
        Servable(folder, executor, BatchSettings())
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_an_unknown_signature_is_named_in_text_that_can_be_sent(folder):
    servable = Servable.__new__(Servable)
    servable.signatures = {}
    with pytest.raises(RequestError) as refused:
        servable.signature("a \ud800")
    assert str(refused.value).encode() and "a \\ud800" in str(refused.value)
