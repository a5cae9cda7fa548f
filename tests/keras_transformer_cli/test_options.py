import argparse

import pytest

from export.client.__main__ import main as ask
from export.serve.__main__ import main as serve
from keras_transformer_cli.options import file_path, folder_path, port, positive_seconds


def test_a_path_begins_at_home_where_it_says_so(monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    for read in (file_path, folder_path):
        assert [read("~/a"), read("a~"), read(".")] == ["/home/anna/a", "a~", "."]


def test_seconds_are_a_number():
    assert positive_seconds("0.5") == 0.5


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "0", "soon"])
def test_other_seconds_are_refused_by_the_client_and_the_server(seconds, tmp_path, capsys):
    with pytest.raises(argparse.ArgumentTypeError):
        positive_seconds(seconds)
    for command in (ask, serve):
        with pytest.raises(SystemExit):
            command(["--model", "m", "--timeout", seconds])
        assert f"must be a positive number, at most 10,000,000. Received: '{seconds}'" in capsys.readouterr().err


def test_a_port_is_a_number_of_sixteen_bits():
    assert [port(text) for text in ("0", "8501", "65535")] == [0, 8501, 65535]
    for text in ("65536", "-1", "http", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"from 0 to 65535. Received: '{text}'"):
            port(text)
