import asyncio
import gzip
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests

from export.serve import RequestError, RequestLimits
from export.serve.application import asgi
from export.serve.servable import Signature
from export.serve.tensors import Spec
from export.serve.versions import Versions
from tests.export.local_server import in_thread, post

LIMIT = 10_000  # bytes of a body
STRING = Spec(np.dtype(object), (None,))


class Echo:
    """Answers with the text, unless the text is the name of an accident."""

    def signature(self, name):
        if name != "serving_default":
            raise RequestError(400, f"no {name}")
        return Signature({"text": STRING}, {"text": STRING})

    async def predict(self, _, inputs):
        accident = getattr(self, inputs["text"][0].decode(), None)
        return await accident() if accident else inputs

    async def slow(self):
        await asyncio.sleep(60)

    async def full(self):
        raise RequestError(503, "The queue is full", retry_after=2)

    async def crash(self):
        raise RuntimeError("crashed")

    async def infinite(self):
        return {"score": np.array([np.inf])}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    (folder / "1").mkdir()
    available = threading.Event()
    said, labels = lambda line: "available" in line and available.set(), {"stable": 1, "next": 7}
    versions = Versions("echo", folder, lambda _: Echo(), said, lambda: labels)
    limits = RequestLimits(timeout=0.5, max_body_bytes=LIMIT)
    with in_thread(asgi(versions, ThreadPoolExecutor(1), limits)) as url:
        assert available.wait(10)
        yield f"{url}/v1/models/echo"


def error(response):
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error"}
    return response.status_code, response.json()["error"]


def test_a_prediction_has_the_form_of_its_request(url):
    assert post(f"{url}:predict", instances=["ä"]).json() == {"predictions": ["ä"]}
    for which in ("/versions/1", "/labels/stable"):
        assert post(f"{url}{which}:predict", inputs={"text": ["ä"]}).json() == {"outputs": ["ä"]}


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("slow", 504, "Deadline exceeded: 0.5 seconds"),
        ("full", 503, "The queue is full"),
        ("crash", 500, "RuntimeError: crashed"),
        ("infinite", 500, "not finite"),
    ],
)
def test_accidents_have_their_status(url, text, status, message):
    response = post(f"{url}:predict", instances=[text])
    code, said = error(response)
    assert code == status and message in said
    assert response.headers.get("Retry-After") == ("2" if text == "full" else None)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", ":predict", 400, "Malformed request: GET /v1/models/echo:predict"),
        ("POST", "", 400, "Malformed request: POST /v1/models/echo"),
        ("DELETE", "", 400, "Malformed request: DELETE"),
        ("POST", ":classify", 400, "Malformed request"),
        ("POST", "/versions/x:predict", 400, "Malformed request"),
        ("POST", "/versions/2:predict", 404, "Servable not found for request: Specific(echo, 2)"),
        ("POST", "/labels/canary:predict", 400, "Unrecognized servable version label: canary"),
        ("GET", "/labels/canary/metadata", 400, "Unrecognized servable version label: canary"),
        ("POST", "2/labels/stable:predict", 400, "Unrecognized servable version label: stable"),
        ("POST", "/labels/next:predict", 404, "Servable not found for request: Specific(echo, 7)"),
        ("POST", "/versions/1/labels/stable:predict", 400, "Malformed request"),
        ("POST", "2:predict", 404, "Servable not found for request: Latest(echo2)"),
        ("POST", "2/versions/7:predict", 404, "Servable not found for request: Specific(echo2, 7)"),
        ("GET", "/versions/2", 404, "Could not find version 2 of model echo"),
        ("GET", "2", 404, "Could not find any versions of model echo2"),
        ("GET", "2/metadata", 404, "Servable not found"),
        ("GET", "/../../../other", 404, "Not Found"),
    ],
)
def test_paths_and_methods_that_are_not_there(url, method, path, status, message):
    code, said = error(requests.request(method, url + path, data=b'{"instances": ["a"]}', timeout=10))
    assert code == status and message in said


@pytest.mark.parametrize("body", [b"", b"{", b'{"instances": ["a", 1]}', b'{"inputs": ["a"], "signature_name": "b"}'])
def test_a_wrong_body_is_a_bad_request(url, body):
    assert error(requests.post(f"{url}:predict", data=body, timeout=10))[0] == 400


@pytest.mark.parametrize("size", [LIMIT + 1, 3 * LIMIT, 100 * LIMIT])
def test_a_body_over_the_limit_is_refused(url, size):
    expected = (413, f"The body of a request may have at most {LIMIT} bytes")
    assert error(requests.post(f"{url}:predict", data=b" " * size, timeout=10)) == expected
    chunks = (b" " * 1000 for _ in range(size // 1000 + 1))  # a body that does not say how long it is
    assert error(requests.post(f"{url}:predict", data=chunks, timeout=10)) == expected


def test_a_body_of_exactly_the_limit_is_read(url):
    body = b'{"instances": ["a"]}'.ljust(LIMIT)
    assert requests.post(f"{url}:predict", data=body, timeout=10).status_code == 200


def test_a_body_may_be_packed(url):
    def ask(body):
        return requests.post(f"{url}:predict", data=body, headers={"Content-Encoding": "gzip"}, timeout=10)

    packed = gzip.compress(b'{"instances": ["a"]}'.ljust(LIMIT))
    assert ask(packed).json() == {"predictions": ["a"]}
    parts = gzip.compress(b'{"instances": ') + gzip.compress(b'["a"]}')
    assert ask(parts).json() == {"predictions": ["a"]}
    too_large = gzip.compress(b" " * (LIMIT + 1))
    assert error(ask(too_large)) == (413, f"The body of a request may have at most {LIMIT} bytes")
    for body in (b'{"instances": ["a"]}', packed[:-9], packed + b"x"):
        code, said = error(ask(body))
        assert code == 400 and "must be compressed by gzip" in said


def test_a_client_that_hangs_up_does_no_harm(url):
    host, port = url.split("/")[2].split(":")
    for text in (b"POST /v1/models/echo:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{", b"\x16\x03\x01"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(text)
    assert post(f"{url}:predict", instances=["a"]).status_code == 200


def test_the_status_is_told_while_predictions_are_slow(url):
    with ThreadPoolExecutor(5) as threads:
        slow = [threads.submit(post, f"{url}:predict", instances=["slow"]) for _ in range(5)]
        status = requests.get(url, timeout=10)
        assert requests.get(f"{url}/labels/stable", timeout=10).json() == status.json()
        assert not any(each.done() for each in slow)
    assert status.json() == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
