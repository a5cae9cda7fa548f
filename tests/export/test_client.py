"""The clients of both protocols and their command, with a model that was really exported."""

import json
import os
import signal
import subprocess
import sys

import pytest

from export.client import GrpcClient, RestClient, ServingError
from tests.export.grpc_server import Service, serving
from tests.export.local_server import Process

TEXTS = ["the dog sees the cat .", "", "ä ½ 👩‍👩‍👧", "the " * 40, "\ufffd", "a", "the cat"]


@pytest.fixture(scope="module")
def url(exported):
    process = Process(exported.parent)
    process.wait_for("version 1 is available")
    yield process.url
    process.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def target(exported):
    with serving(Service(exported)) as target:
        yield target


@pytest.fixture(params=["rest", "grpc"])
def client(request, exported):
    settings = {"version": int(exported.name), "batch_size": 3}
    if request.param == "rest":
        client = RestClient(request.getfixturevalue("url"), "demo", **settings)
    else:
        client = GrpcClient(request.getfixturevalue("target"), "demo", **settings)
    with client:
        yield client


def test_texts_are_translated_as_the_model_does(client, signatures):
    expected = [text.decode() for text in signatures["serving_default"](text=TEXTS)["translation"]]
    assert client.translate(TEXTS) == expected


def test_half_a_surrogate_pair_is_the_replacement_character(client):
    assert client.translate(["the cat", "the \udc80 cat"]) == client.translate(["the cat", "the \ufffd cat"])


def test_every_output_is_that_of_the_model(client, signatures):
    inputs = {"source": TEXTS, "target": TEXTS[::-1]}
    expected = signatures["score"](**inputs)
    answer = client.predict(inputs, "score")
    assert answer["num_tokens"] == expected["num_tokens"].tolist()
    assert answer["log_prob"] == pytest.approx(expected["log_prob"].tolist(), rel=1e-4)


def test_ids_of_several_batches_are_as_wide_as_those_of_one(client, signatures):
    ids = [[5, 3, 0, 0, 0], [7, 11, 3, 0, 0], [5, 7, 11, 13, 3], [3, 0, 0, 0, 0]]
    expected = signatures["translate_ids"](ids=ids)
    answer = client.predict({"ids": ids}, "translate_ids")
    assert answer["lengths"] == expected["lengths"].tolist() and answer["ids"] == expected["ids"].tolist()


def test_a_label_is_answered_by_its_version(client, request, signatures):
    server = request.getfixturevalue("url" if isinstance(client, RestClient) else "target")
    with type(client)(server, "demo", label="stable") as asked:
        assert asked.translate(TEXTS) == client.translate(TEXTS)
    with type(client)(server, "demo", label="canary") as asked, pytest.raises(ServingError) as caught:
        asked.translate(TEXTS)
    assert caught.value.code == "INVALID_ARGUMENT" and "version label: canary" in caught.value.message


def test_the_status_says_that_the_model_is_there(client, exported):
    assert client.status() == [(int(exported.name), "AVAILABLE", "")]


def test_wrong_names_are_the_servers_errors(client):
    for inputs, signature in (({"txt": ["a"]}, "serving_default"), ({"text": ["a"]}, "other")):
        with pytest.raises(ServingError) as caught:
            client.predict(inputs, signature)
        assert caught.value.code == "INVALID_ARGUMENT"


# --- the command


def start(*arguments, **streams):
    command = [sys.executable, "-m", "export.client", "--model", "demo", *arguments]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen(command, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}, **streams)


def test_lines_are_translated_over_both_protocols(url, target, signatures):
    lines = b"the dog\r\n\nthe cat"
    translations = signatures["serving_default"](text=["the dog", "", "the cat"])["translation"]
    for arguments in (["--rest", url], ["--grpc", target]):
        with start(*arguments) as process:
            out, _ = process.communicate(lines, timeout=60)
        assert process.returncode == 0
        assert out == b"".join(translation + b"\n" for translation in translations)


def test_lines_are_answered_before_the_last_has_come_and_an_interruption_is_quiet(url):
    with start("--rest", url) as process:
        process.stdin.write(b"the dog\n" * 32)
        process.stdin.flush()
        assert len([process.stdout.readline() for _ in range(32)]) == 32
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)
    assert (process.returncode, out, error) == (130, b"", b"")


def test_a_reader_who_has_seen_enough_is_no_error(url):
    reading, writing = os.pipe()
    with start("--rest", url, stdout=writing) as process:
        os.close(writing)
        os.close(reading)
        _, error = process.communicate(b"the dog\n" * 100, timeout=20)
    assert (process.returncode, error) == (141, b"")


@pytest.mark.parametrize(
    ("protocol", "signature", "columns", "line", "outputs"),
    [
        ("--rest", "score", "source,target", "the dog\tder Hund", "log_prob score num_tokens token_log_probs"),
        ("--rest", "align", "source,target", "the dog\tder Hund", "source_pieces target_pieces weights"),
        ("--rest", "translate_prefix", "text,prefix", "the dog\tder", "translation score"),
        ("--rest", "sample", "text,temperature,seed", "the dog\t0.5\t7", "translation score"),
        ("--grpc", "sample", "text,temperature,seed", "the dog\t1\t7", "translation score"),
    ],
)
def test_signatures_of_several_inputs_are_asked_by_columns(url, target, protocol, signature, columns, line, outputs):
    server = {"--rest": url, "--grpc": target}[protocol]
    with start(protocol, server, "--signature", signature, "--columns", columns, "--json") as process:
        out, _ = process.communicate(f"{line}\n{line}\n".encode(), timeout=60)
    assert process.returncode == 0
    assert [set(json.loads(answer)) for answer in out.decode().splitlines()] == [set(outputs.split())] * 2


def test_many_long_lines_are_all_answered(url):
    with start("--rest", url) as process:
        out, error = process.communicate((b"the " * 50_000 + b"\n") * 32 + b"\n", timeout=120)
    assert process.returncode == 0 and out.count(b"\n") == 33
    assert error.count(b"\n") == 32 and error.startswith(b"Line 1: a text exceeds 65,536 bytes")


def test_a_closed_standard_input_is_one_line():
    command = f"exec {sys.executable} -m export.client --model demo <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: stdin is closed") and done.stderr.count(b"\n") == 1


def test_an_unknown_model_is_one_line(url):
    with start("--rest", url, "--model", "other") as process:
        out, error = process.communicate(b"the dog\n", timeout=20)
    expected = b"error: NOT_FOUND: Servable not found for request: Latest(other)\n"
    assert (process.returncode, out, error) == (1, b"", expected)
