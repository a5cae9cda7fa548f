"""Spread, and the alternation with another program."""

import json
import subprocess
import sys
from types import SimpleNamespace

import measure
import pytest

PEER = """
import os, sys
assert os.environ["BENCH_PAIRED"] and "TF_ENABLE_ONEDNN_OPTS" not in os.environ
print("something else", flush=True)
print('{"ready": true}', flush=True)
for number, _ in enumerate(sys.stdin):
    open(sys.argv[1], "a").write("theirs ")
    print('{"rate": %d}' % (2 + number), flush=True)
"""


@pytest.fixture
def peer(tmp_path):
    """A command that runs the program."""

    def write(program, *arguments):
        path = tmp_path / "peer.py"
        path.write_text(program)
        return f"{sys.executable} {path} {' '.join(map(str, arguments))}"

    return write


def test_spread_is_the_median_between_the_extremes():
    assert measure.spread([5.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 5.0}
    assert measure.spread([4.0, 1.00004]) == {"median": 2.5, "min": 1.0, "max": 4.0}


@pytest.mark.parametrize("wrong", [["--repeats", "0"], ["--peer", "foo"], ["--peer", "a=/nowhere/b --work {work}"]])
def test_wrong_options_are_refused_before_the_work(wrong, capsys):
    parser = measure.command_line("about")
    measure.add_works(parser, ["T1"])
    with pytest.raises(SystemExit):
        parser.parse_args(wrong)
    assert f"Received: {wrong[1]}" in capsys.readouterr().err
    assert parser.parse_args(["--peer", f"a={sys.executable} x=y"]).peer == [("a", f"{sys.executable} x=y")]


def test_both_sides_take_turns_and_each_begins_every_other_time(peer, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # as our scripts do for themselves
    journal = tmp_path / "journal"

    def ours():
        with journal.open("a") as file:
            file.write("ours ")
        return 7.0

    rates = measure.alternate(ours, peer(PEER, journal), 3)
    warm_up, *pairs = zip(*[iter(journal.read_text().split())] * 2, strict=True)
    assert warm_up == ("ours", "theirs")
    assert pairs == [("ours", "theirs"), ("theirs", "ours"), ("ours", "theirs")]
    assert list(rates) == [(7.0, 7.0, 7.0), (3, 4, 5)]  # theirs is 2 where it warms up


def test_the_ratio_is_that_of_each_pair(peer, tmp_path, capsys):
    options = SimpleNamespace(repeats=3, peer=[("the other", peer(PEER, tmp_path / "{work}"))])
    measure.measure("D1", "sentences/s", lambda: 12.0, options, how="xla")
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert record["ratio"] == {"median": 3.0, "min": 2.4, "max": 4.0}  # 12 / 4, 12 / 5, 12 / 3
    assert record["peer_rate"] == {"median": 4, "min": 3, "max": 5}
    assert (record["work"], record["how"], record["peer"], record["median"]) == ("D1", "xla", "the other", 12.0)
    assert "3.00 x the other (2.40 to 4.00)" in said.err
    assert (tmp_path / "D1").exists()  # the name of the work has reached the command


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "print('{\"ready\": true}', flush=True); raise SystemExit(3)",
        "print('{\"ready\": true}', flush=True); input(); raise SystemExit(3)",
    ],
    ids=["while it builds", "while it waits", "while it works"],
)
def test_a_peer_that_dies_is_named_with_its_exit_code(peer, program):
    with pytest.raises(SystemExit, match=r"has ended, with exit code 3: .*peer\.py"):
        measure.alternate(lambda: 1.0, peer(program), 3)


def test_a_script_answers_as_somebody_elses_peer():
    program = "import measure; measure.measure('D1', 'sentences/s', lambda: 7.5, None)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="go\ngo\n",
        capture_output=True,
        text=True,
        cwd=measure.__file__.removesuffix("measure.py"),
        env={measure.PAIRED: "1"},
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"ready": True}, {"rate": 7.5}, {"rate": 7.5}]
