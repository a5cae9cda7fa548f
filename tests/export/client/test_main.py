import io
import json
import subprocess
import sys

import pytest

from export import client
from export.client import ServingError, lines
from export.client import __main__ as command
from export.client.rows import Client
from tests.processes import environment


class Shouter(Client):
    """Upper case in place of translations."""

    made: dict
    asked: list

    def __init__(self, target, model, *, version=None, label=None, timeout=30.0, batch_size=32):
        super().__init__(model, version=version, label=label, batch_size=batch_size)
        Shouter.made = {"target": target, "model": model, "version": version, "label": label, "timeout": timeout}
        Shouter.asked = []

    def _predict(self, inputs, signature):
        Shouter.asked.append(inputs)
        if "text" not in inputs:
            return {"log_prob": [-1.0 for _ in next(iter(inputs.values()))]}
        texts = [text.upper() for text in inputs["text"]]
        if signature == "translate_nbest":
            return {"translations": [[text, "worse"] for text in texts], "scores": [[-1.0, -2.0] for _ in texts]}
        if signature == "other":
            return {"log_prob": [-1.0 for _ in texts]}
        if "ERROR" in texts:
            raise ServingError("NOT_FOUND", "two\nlines")
        return {"translation": texts, "score": [-0.5 for _ in texts]}

    def status(self):
        return []

    def close(self):
        pass


@pytest.fixture
def run(monkeypatch, capsysbinary):
    """(exit code, standard output, standard error) of the command."""
    for name in ("RestClient", "GrpcClient"):
        monkeypatch.setattr(client, name, Shouter)

    def run(text, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        code = command.main(["--model", "demo", *arguments])
        return code, *capsysbinary.readouterr()

    return run


def test_a_request_has_as_many_lines_as_are_asked_for(run):
    assert run(b"a\nb\nc\n", "--batch-size", "2") == (0, b"A\nB\nC\n", b"")
    assert [inputs["text"] for inputs in Shouter.asked] == [["a", "b"], ["c"]]


def test_lines_in_are_as_many_lines_out(run):
    assert run(b"a\n\nb\r\nc") == (0, b"A\n\nB\nC\n", b"")
    assert run(b"") == (0, b"", b"")


def test_only_a_line_feed_ends_a_line(run):
    text = "a\u2028b\x0bc\rd\x85e\n"
    assert run(text.encode()) == (0, text.upper().encode(), b"")


def test_bytes_that_are_not_unicode_are_replaced(run):
    assert run(b"a\xffb\n") == (0, "A\ufffdB\n".encode(), b"")


def test_more_lines_than_a_batch_come_out_in_order(run):
    lines = b"".join(b"%d\n" % number for number in range(77))
    assert run(lines) == (0, lines, b"")


def test_a_line_break_in_a_translation_becomes_a_blank(run, monkeypatch):
    monkeypatch.setattr(Shouter, "_predict", lambda self, inputs, _: {"translation": ["a\nb" for _ in inputs["text"]]})
    assert run(b"x\n") == (0, b"a b\n", b"")


def test_the_best_of_several_is_printed(run):
    assert run(b"a\nb\n", "--signature", "translate_nbest") == (0, b"A\nB\n", b"")


def test_json_has_all_outputs(run):
    code, out, _ = run("ä\nb\n".encode(), "--signature", "translate_nbest", "--json")
    lines = out.decode().splitlines()
    assert code == 0 and [json.loads(line)["scores"] for line in lines] == [[-1.0, -2.0]] * 2
    assert lines[0] == '{"translations": ["Ä", "worse"], "scores": [-1.0, -2.0]}'


def test_a_signature_without_translations_needs_json(run):
    code, out, error = run(b"a\n", "--signature", "other")
    assert (code, out) == (1, b"")
    assert error == b"error: The signature returns no translation, only log_prob: --json prints that.\n"
    assert run(b"a\n", "--signature", "other", "--json") == (0, b'{"log_prob": -1.0}\n', b"")


def test_an_error_of_the_server_is_one_line(run):
    assert run(b"error\n") == (1, b"", b"error: NOT_FOUND: two lines\n")


def test_an_interruption_is_quiet(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Shouter, "_predict", interrupt)
    assert run(b"a\n") == (130, b"", b"")


def test_the_options_reach_the_client(run):
    run(b"")
    made = {"target": "http://127.0.0.1:8501", "model": "demo", "version": None, "label": None, "timeout": 30.0}
    assert Shouter.made == made
    run(b"", "--grpc", "a:1", "--version", "3", "--timeout", "0.5")
    assert Shouter.made == {**made, "target": "a:1", "version": 3, "timeout": 0.5}
    run(b"", "--label", "stable")
    assert Shouter.made == {**made, "label": "stable"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grpc", "a:1", "--rest", "http://b"], b"not allowed with argument"),
        (["--rest", "server:8501"], b"argument --rest: must begin with http:// or https://. Received: 'server:8501'"),
        (["--grpc", ""], b"argument --grpc: must be HOST:PORT. Received: ''"),
        (["--grpc", "server"], b"argument --grpc: must be HOST:PORT. Received: 'server'"),
        (["--version", "1", "--label", "stable"], b"not allowed with argument"),
        (["--timeout", "0"], b"argument --timeout: must be a positive number, at most 10,000,000. Received: '0'"),
        (["--timeout", "nan"], b"must be a positive number, at most 10,000,000. Received: 'nan'"),
        (["--timeout", "inf"], b"must be a positive number, at most 10,000,000. Received: 'inf'"),
        (["--timeout", "1e10"], b"must be a positive number, at most 10,000,000. Received: '1e10'"),
        (["--timeout", "soon"], b"must be a positive number, at most 10,000,000. Received: 'soon'"),
        (["--columns", "source,"], b"must be different names with commas between them. Received: 'source,'"),
        (["--columns", "text,text"], b"must be different names with commas between them. Received: 'text,text'"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(run, capsysbinary, arguments, message):
    with pytest.raises(SystemExit) as caught:
        run(b"", *arguments)
    assert caught.value.code == 2 and message in capsysbinary.readouterr().err


def test_columns_are_the_inputs(run):
    lines = b"the dog\tder Hund\na\t\n"
    code, out, error = run(lines, "--columns", "source,target", "--json")
    assert (code, out, error) == (0, b'{"log_prob": -1.0}\n' * 2, b"")
    assert Shouter.asked == [{"source": ["the dog", "a"], "target": ["der Hund", ""]}]


def test_a_line_without_its_columns_is_an_error_that_names_it(run):
    code, out, error = run(b"a\tb\na\n", "--columns", "source,target", "--json")
    expected = b"error: Line 2 must have 2 columns separated by TABs, source, target. Received: 1.\n"
    assert (code, error) == (1, expected)
    assert out.count(b"\n") == 1  # what stood before it is answered


def test_long_lines_become_several_requests_and_none_is_lost(run, monkeypatch):
    monkeypatch.setattr(lines, "MAX_REQUEST", 100)
    texts = [b"%02d" % number * 20 for number in range(9)]
    assert run(b"\n".join(texts)) == (0, b"".join(text + b"\n" for text in texts), b"")
    assert [len(inputs["text"]) for inputs in Shouter.asked] == [1] * 9


def test_a_line_that_is_cut_is_said_once(run, monkeypatch):
    monkeypatch.setattr(lines, "MAX_TEXT", 8)
    code, out, error = run(b"a\nbbbbbbbbbb\nc\n")
    assert (code, out) == (0, b"A\nBBBBBBBB\nC\n")
    assert error == b"Line 2: a text exceeds 8 bytes; the rest of it is not sent.\n"


@pytest.mark.parametrize("name", ["stdin", "stdout"])
def test_a_stream_that_is_closed_is_one_line(monkeypatch, capsys, name):
    monkeypatch.setattr(sys, name, None)
    assert command.main(["--model", "demo"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {name} is closed: lines are read") and error.count("\n") == 1


def test_who_types_gets_an_answer_to_each_line(run, monkeypatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    monkeypatch.setattr(Shouter, "_predict", lambda self, inputs, _: {"translation": [str(len(inputs["text"]))]})
    assert run(b"a\nb\n") == (0, b"1\n1\n", b"")


@pytest.mark.parametrize(
    "accident",
    [
        "raise KeyboardInterrupt",
        "import os\ntry: os.kill(os.getpid(), 2)\nexcept KeyboardInterrupt: raise ImportError('initialization failed')",
    ],
)
@pytest.mark.parametrize("package", ["requests", "urllib3"])
def test_an_interruption_of_the_imports_is_quiet(tmp_path, package, accident):
    (tmp_path / f"{package}.py").write_text(accident, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "export.client", "--model", "demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(tmp_path),
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize("module", ["client", "serve"])
def test_what_is_imported_before_the_first_line_of_main_is_light(module):
    code = f"import sys, export.{module}.__main__; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "google", "grpc", "keras", "numpy", "requests", "starlette", "tensorflow", "urllib3", "uvicorn"}
    assert not heavy & set(done.stdout.split())
