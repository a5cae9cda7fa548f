import socket
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from export.client import GrpcClient, ServingError
from tests.export.grpc_server import Service, serving


class Shouter(tf.Module):
    """Upper case in place of translations."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def shout(self, text):
        return {"translation": tf.strings.upper(text), "raw_bytes": text}

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.float32, "temperature"), tf.TensorSpec([None], tf.int64, "seed")]
    )
    def sample(self, temperature, seed):
        return {"temperature": temperature, "seed": seed}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, "ids")])
    def ids(self, ids):
        return {"ids": ids[:, : 1 + tf.reduce_max(ids)]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "size")])
    def large(self, size):
        return {"zeros": tf.zeros([tf.shape(size)[0], tf.reduce_max(size)])}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder, module = tmp_path_factory.mktemp("shouter") / "1", Shouter()
    signatures = {"serving_default": module.shout, "sample": module.sample, "ids": module.ids, "large": module.large}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return Service(folder)


@pytest.fixture(scope="module")
def target(service):
    with serving(service) as target:
        yield target


@pytest.fixture
def client(target, service):
    service.num_rows.clear()
    with GrpcClient(target, "demo", timeout=10, batch_size=3) as client:
        yield client
    assert not service.accidents


def test_rows_are_asked_for_a_few_at_a_time(client, service):
    assert client.translate([f"a{n}" for n in range(7)]) == [f"A{n}" for n in range(7)]
    assert service.num_rows == [3, 3, 1]


def test_text_is_text_and_bytes_are_bytes(client):
    assert client.predict({"text": ["ä", b"\xff"]}) == {
        "translation": ["ä", "\ufffd"],
        "raw_bytes": [b"\xc3\xa4", b"\xff"],
    }


def test_lists_become_the_numbers_that_the_signature_wants(client):
    answer = client.predict({"temperature": [1, 0.5], "seed": [2**40, -1]}, "sample")
    assert answer == {"temperature": [1.0, 0.5], "seed": [2**40, -1]}
    assert client.predict({"temperature": np.ones(2), "seed": np.arange(2)}, "sample")["seed"] == [0, 1]


def test_answers_of_different_widths_are_filled_up(client):
    assert client.predict({"ids": [[1, 1, 1]] * 3 + [[2, 1, 1]]}, "ids")["ids"] == [[1, 1, 0]] * 3 + [[2, 1, 1]]


def test_answers_may_be_larger_than_grpc_allows_by_itself(client):
    assert len(client.predict({"size": [2_000_000]}, "large")["zeros"][0]) == 2_000_000


def test_the_status_is_a_list_of_versions(client):
    assert client.status() == [(1, "AVAILABLE", "")]


@pytest.mark.parametrize("status", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_what_may_pass_is_asked_again(client, service, status):
    service.accidents += [status, status]
    assert client.translate(["a"]) == ["A"]


@pytest.mark.parametrize("retries", [1, 2])
def test_there_are_as_many_attempts_after_the_first_as_are_asked_for(target, service, retries):
    with GrpcClient(target, "demo", retries=retries) as client:
        client.translate(["a"])  # which asks for the signatures, too
        service.accidents += ["UNAVAILABLE"] * retries
        assert client.translate(["a"]) == ["A"]
        service.accidents += ["UNAVAILABLE"] * (retries + 1)
        with pytest.raises(ServingError, match="said UNAVAILABLE"):
            client.translate(["a"])
    assert not service.accidents


def test_what_does_not_pass_is_an_error_at_once(client, service):
    service.accidents.append("FAILED_PRECONDITION")
    with pytest.raises(ServingError) as caught:
        client.translate(["a"])
    assert (caught.value.code, caught.value.message) == ("FAILED_PRECONDITION", "said FAILED_PRECONDITION")


def test_without_retries_the_first_error_is_the_last(target, service):
    service.accidents.append("UNAVAILABLE")
    with GrpcClient(target, "demo", retries=0) as client, pytest.raises(ServingError, match="said UNAVAILABLE"):
        client.translate(["a"])


def test_more_retries_than_grpc_makes_are_refused(target):
    with pytest.raises(ValueError, match="from 0 to 4. Received: 5"):
        GrpcClient(target, "demo", retries=5)


def test_a_deadline_is_kept(target, service):
    with GrpcClient(target, "demo", timeout=0.5) as client:
        client.translate(["a"])
        service.accidents.append(slow := threading.Event())
        with pytest.raises(ServingError) as caught:
            client.translate(["a"])
        slow.set()
    assert caught.value.code == "DEADLINE_EXCEEDED" and target in caught.value.message


@pytest.mark.parametrize(("model", "version"), [("other", None), ("demo", 7)])
def test_a_model_or_version_that_is_not_there_is_not_found(target, model, version):
    with GrpcClient(target, model, version=version) as client:
        for ask in (client.status, lambda: client.translate(["a"])):
            with pytest.raises(ServingError, match="Servable not found") as caught:
                ask()
            assert caught.value.code == "NOT_FOUND"


def test_a_label_is_asked_for(target):
    with GrpcClient(target, "demo", label="stable") as client:
        assert client.translate(["a"]) == ["A"]
    with GrpcClient(target, "demo", label="canary") as client:
        with pytest.raises(ServingError, match="Unrecognized servable version label: canary") as caught:
            client.translate(["a"])
        assert caught.value.code == "INVALID_ARGUMENT"


def test_a_signature_that_is_not_there_is_named(client):
    with pytest.raises(ServingError, match="no signature 'other'; the model has ids, large, sample, serving_default"):
        client.predict({"text": ["a"]}, "other")


def test_inputs_that_do_not_fit_are_refused(client):
    with pytest.raises(ServingError) as caught:
        client.predict({"txt": ["a"]})
    assert caught.value.code == "INVALID_ARGUMENT"
    for inputs, signature in (
        ({"temperature": ["warm"], "seed": [1]}, "sample"),
        ({"temperature": [1], "seed": [2**63]}, "sample"),
        ({"ids": [[2**40 + 5]]}, "ids"),  # as a message it would be 5
        ({"ids": [[1, 2], [3]]}, "ids"),
        ({"ids": [["1"]]}, "ids"),
        ({"text": [None]}, "serving_default"),
    ):
        with pytest.raises(ServingError, match="input '(temperature|seed|ids|text)'") as caught:
            client.predict(inputs, signature)
        assert caught.value.code == "INVALID_ARGUMENT"


def test_a_server_that_comes_up_late_is_waited_for(service):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answers = []

    def ask():
        with GrpcClient(f"127.0.0.1:{port}", "demo", timeout=10) as client:
            answers.append(client.translate(["a"]))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    with serving(service, port):
        thread.join()
    assert answers == [["A"]]


def test_a_server_that_is_not_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        target = f"127.0.0.1:{free.getsockname()[1]}"
    with GrpcClient(target, "demo", retries=1) as client, pytest.raises(ServingError, match="refused") as caught:
        client.translate(["a"])
    assert caught.value.code == "UNAVAILABLE"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ImportError, match="^no package tensorflow_serving.apis: pip install tensorflow-serving-api$"):
        GrpcClient("127.0.0.1:1", "demo")
