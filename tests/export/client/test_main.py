import io
import json
import sys

import pytest

from export.client import ServingError
from export.client import __main__ as command
from export.client.rows import Client


class Shouter(Client):
    """Upper case in place of translations."""

    made: dict

    def __init__(self, target, model, *, version=None, timeout=30.0, batch_size=32):
        super().__init__(model, version, batch_size)
        Shouter.made = {"target": target, "model": model, "version": version, "timeout": timeout}

    def _predict(self, inputs, signature):
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
        monkeypatch.setattr(command, name, Shouter)

    def run(text, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        code = command.main(["--model", "demo", *arguments])
        return code, *capsysbinary.readouterr()

    return run


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
    assert error == b"error: The signature gives no translation but log_prob: --json prints these.\n"
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
    assert Shouter.made == {"target": "http://127.0.0.1:8501", "model": "demo", "version": None, "timeout": 30.0}
    run(b"", "--grpc", "a:1", "--version", "3", "--timeout", "0.5")
    assert Shouter.made == {"target": "a:1", "model": "demo", "version": 3, "timeout": 0.5}


def test_there_is_one_server(run):
    with pytest.raises(SystemExit):
        run(b"", "--grpc", "a:1", "--rest", "http://b")


def test_who_types_gets_an_answer_to_each_line(run, monkeypatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    monkeypatch.setattr(Shouter, "_predict", lambda self, inputs, _: {"translation": [str(len(inputs["text"]))]})
    assert run(b"a\nb\n") == (0, b"1\n1\n", b"")
