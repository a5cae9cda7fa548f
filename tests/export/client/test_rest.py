import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from export.client import RestClient, ServingError

OK = (200, {}, {"outputs": {"translation": ["ä"], "score": [-1.5]}})


class Handler(BaseHTTPRequestHandler):
    """Answers by the script of the server, and keeps what was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, json.loads(body) if body else None))
        step = self.server.script.pop(0)
        if step == "hang":
            self.server.finished.wait(10)
        if isinstance(step, str):
            self.close_connection = True  # without an answer
            return
        status, headers, content = step
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.script, server.asked, server.finished = [], [], threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.finished.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def client(server):
    with RestClient(server.url + "/", "demo", timeout=5) as client:
        yield client


def test_a_request_has_the_form_of_columns(server, client):
    server.script = [OK]
    answer = client.predict({"text": ["ü"], "seed": np.array([2**40]), "raw": [b"\xff"]}, "sample")
    assert answer == {"translation": ["ä"], "score": [-1.5]}
    inputs = {"text": ["ü"], "seed": [2**40], "raw": [{"b64": "/w=="}]}
    assert server.asked == [("/v1/models/demo:predict", {"signature_name": "sample", "inputs": inputs})]


@pytest.mark.parametrize("end", ["", "/"])
def test_a_server_may_be_below_a_path(server, end):
    server.script = [OK]
    with RestClient(f"{server.url}/models{end}", "demo") as client:
        assert client.translate(["ü"]) == ["ä"]
    assert server.asked[0][0] == "/models/v1/models/demo:predict"


def test_a_version_stands_in_the_path(server):
    server.script = [OK]
    with RestClient(server.url, "demo", version=3) as client:
        assert client.translate(["ü"]) == ["ä"]
    assert server.asked[0][0] == "/v1/models/demo/versions/3:predict"


@pytest.mark.parametrize(("label", "path"), [("stable", "stable"), ("a b:c/ä", "a%20b%3Ac%2F%C3%A4")])
def test_a_label_stands_in_the_path(server, label, path):
    server.script = [OK]
    with RestClient(server.url, "demo", label=label) as client:
        assert client.translate(["ü"]) == ["ä"]
    assert server.asked[0][0] == f"/v1/models/demo/labels/{path}:predict"


def test_the_name_of_the_model_is_no_part_of_the_path(server):
    server.script = [OK]
    with RestClient(server.url, "de?m/o") as client:
        client.predict({"text": ["a"]})
    assert server.asked[0][0] == "/v1/models/de%3Fm%2Fo:predict"


@pytest.mark.parametrize("content", [{"status": "ok"}, {}])
def test_json_of_somebody_else_is_an_error(server, client, content):
    server.script = [(200, {}, content)] * 2
    for ask in (lambda: client.predict({"text": ["a"]}), client.status):
        with pytest.raises(ServingError, match="does not answer as TensorFlow Serving") as caught:
            ask()
        assert caught.value.code == "INTERNAL"


@pytest.mark.parametrize("status", [None, [{}], [{"version": "one", "state": "", "status": {"error_message": ""}}]])
def test_a_status_of_somebody_else_is_an_error(server, client, status):
    server.script = [(200, {}, {"model_version_status": status})]
    with pytest.raises(ServingError, match="does not answer as TensorFlow Serving: model_version_status"):
        client.status()


@pytest.mark.parametrize("outputs", [{"translation": None}, {"translation": "a"}, {"translation": ["a", "b"]}])
def test_outputs_that_are_no_rows_are_an_error(server, client, outputs):
    server.script = [(200, {}, {"outputs": outputs})]
    with pytest.raises(ServingError, match="the answer to 1 rows has other sizes"):
        client.predict({"text": ["a"]})


@pytest.mark.parametrize("outputs", [{}, {"translations": ["a"]}, {"translation": [None]}])
def test_what_is_no_translation_is_an_error(server, client, outputs):
    server.script = [(200, {}, {"outputs": outputs})]
    with pytest.raises(ServingError, match="no output `translation` with a text for every row"):
        client.translate(["a"])


def test_json_too_deep_to_be_read_is_an_error(server, client):
    server.script = [(200, {}, b'{"outputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")]
    with pytest.raises(ServingError, match="HTTP status 200"):
        client.predict({"text": ["a"]})


@pytest.mark.parametrize("metadata", [None, {"signature_def": []}, {"signature_def": {"signature_def": {"a": 1}}}])
def test_metadata_of_somebody_else_is_an_error(server, client, metadata):
    server.script = [(200, {}, {"outputs": None}), (200, {}, {"metadata": metadata})]
    with pytest.raises(ServingError, match="does not answer as TensorFlow Serving: metadata"):
        client.predict({"text": ["a"]})


def test_an_answer_that_stops_behind_its_headers_is_too_late(server):
    server.script = [(200, {"Content-Length": "99"}, b"{")]
    with RestClient(server.url, "demo", timeout=0.3, retries=0) as client, pytest.raises(ServingError) as caught:
        client.predict({"text": ["a"]})
    assert caught.value.code == "DEADLINE_EXCEEDED"


def test_the_name_of_a_single_output_is_looked_up_once(server, client):
    outputs = {"signature_def": {"align": {"outputs": {"weights": {}}}}}
    metadata = (200, {}, {"metadata": {"signature_def": outputs}})
    server.script = [(200, {}, {"outputs": [[0.5]]}), metadata, (200, {}, {"outputs": [[0.25]]})]
    for expected in (0.5, 0.25):
        assert client.predict({"source": ["a"]}, "align") == {"weights": [[expected]]}
    assert server.asked[1][0] == "/v1/models/demo/metadata" and not server.script


def test_strings_that_are_not_unicode_and_bytes_are_read(server, client):
    server.script = [(200, {}, b'{"outputs": {"text": ["\xff"], "raw_bytes": [{"b64": "/w=="}]}}')]
    assert client.predict({"text": ["a"]}) == {"text": ["\ufffd"], "raw_bytes": [b"\xff"]}


def test_the_status_is_a_list_of_versions(server, client):
    status = {"version": "3", "state": "END", "status": {"error_code": "UNKNOWN", "error_message": "broken"}}
    server.script = [(200, {}, {"model_version_status": [status]})]
    assert client.status() == [(3, "END", "broken")]


@pytest.mark.parametrize(
    ("status", "content", "code", "message"),
    [
        (400, {"error": "Missing 'inputs'"}, "INVALID_ARGUMENT", "Missing 'inputs'"),
        (404, {"error": "Servable not found"}, "NOT_FOUND", "Servable not found"),
        (413, {"error": "too large"}, "RESOURCE_EXHAUSTED", "too large"),
        (412, {"error": "not now"}, "FAILED_PRECONDITION", "not now"),
        (500, {"error": "crashed"}, "INTERNAL", "crashed"),
        (501, {"error": "not here"}, "UNIMPLEMENTED", "not here"),
        (504, {"error": "late"}, "DEADLINE_EXCEEDED", "late"),
        (502, b"<html>\nBad Gateway</html>", "UNKNOWN", "HTTP status 502: <html> Bad Gateway</html>"),
        (302, b"", "UNKNOWN", "HTTP status 302: "),
        (200, b"no json", "UNKNOWN", "HTTP status 200: no json"),
        (200, b"[]", "UNKNOWN", "HTTP status 200: []"),
    ],
)
def test_an_error_has_the_message_of_the_server(server, client, status, content, code, message):
    server.script = [(status, {"Location": "/elsewhere"}, content)]
    with pytest.raises(ServingError) as caught:
        client.translate(["a"])
    assert (caught.value.code, caught.value.message) == (code, message)
    assert len(server.asked) == 1


@pytest.mark.parametrize("accident", [(503, {}, {}), (429, {}, {}), "close"])
def test_what_may_pass_is_asked_again(server, client, accident):
    server.script = [accident, accident, OK]
    assert client.translate(["a"]) == ["ä"]
    assert len(server.asked) == 3


def test_a_server_says_when_to_come_back(server, client):
    server.script = [(429, {"Retry-After": "1"}, {}), OK]
    start = time.monotonic()
    assert client.translate(["a"]) == ["ä"]
    assert 1 <= time.monotonic() - start < 4


def test_nobody_is_waited_for_very_long(server, client, monkeypatch):
    monkeypatch.setattr("export.client.rest.MAX_RETRY_AFTER", 0.01)
    server.script = [(503, {"Retry-After": "86400"}, {}), OK]
    assert client.translate(["a"]) == ["ä"]


@pytest.mark.parametrize(("status", "code"), [(503, "UNAVAILABLE"), (429, "RESOURCE_EXHAUSTED")])
def test_after_the_last_attempt_the_message_is_the_servers(server, status, code):
    server.script = [(status, {}, {"error": "The queue is full"})] * 2
    with RestClient(server.url, "demo", retries=1) as client, pytest.raises(ServingError) as caught:
        client.translate(["a"])
    assert str(caught.value) == f"{code}: The queue is full" and len(server.asked) == 2


def test_a_server_that_is_too_slow_is_not_asked_again(server):
    server.script = ["hang", OK]
    with RestClient(server.url, "demo", timeout=0.3) as client, pytest.raises(ServingError) as caught:
        client.translate(["a"])
    assert caught.value.code == "DEADLINE_EXCEEDED" and "within 0.3 s" in caught.value.message
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with RestClient(url, "demo", retries=1) as client, pytest.raises(ServingError, match="refused") as caught:
        client.translate(["a"])
    assert caught.value.code == "UNAVAILABLE"


def test_a_password_in_the_url_is_not_shown():
    with socket.create_server(("127.0.0.1", 0)) as free:
        host = f"127.0.0.1:{free.getsockname()[1]}"
    with RestClient(f"http://me:s@cret@{host}", "demo", retries=0) as client, pytest.raises(ServingError) as caught:
        client.translate(["a"])
    assert f"http://{host}/v1" in caught.value.message and "cret" not in str(caught.value)


def test_a_server_that_cannot_be_connected_to_is_unavailable():
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # more than may wait, so that nobody else is answered, as behind a firewall
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        with RestClient(url, "demo", timeout=0.3, retries=0) as client, pytest.raises(ServingError) as caught:
            client.translate(["a"])
    assert caught.value.code == "UNAVAILABLE" and "no connection within 0.3 s" in caught.value.message


def test_a_url_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="must begin with http:// or https://. Received: 127.0.0.1:8501."):
        RestClient("127.0.0.1:8501", "demo")


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_what_json_cannot_say_is_refused_before_it_is_sent(server, client, value):
    with pytest.raises(ValueError):
        client.predict({"text": [value]})
    assert not server.asked


def test_the_client_needs_neither_tensorflow_nor_grpc():
    code = "import sys, export.client; export.client.RestClient('http://a', 'b'); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "numpy", "grpc"} & set(done.stdout.split())


def test_a_server_without_https_is_said_to_be_none():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        client = RestClient(f"https://127.0.0.1:{listener.getsockname()[1]}", "demo", retries=0)
        with client, pytest.raises(ServingError, match="cannot reach https://.*SSL") as caught:
            client.translate(["a"])
        thread.join()
    assert caught.value.code == "UNAVAILABLE"
