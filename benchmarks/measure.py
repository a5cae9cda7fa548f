"""Repeats, their median and spread, memory; alone, or in alternation with another program on the same work.

These machines drift: a ratio counts only where both sides ran in turn. So a measurement is a function that makes one
repeat and returns its rate, and its caller says when. Another program takes part by three lines of JSON:

    it prints  {"ready": true}       once everything is built and warm
    it reads   a line                for every repeat
    it prints  {"rate": 12.3}        and ends with its standard input

It does not get the TF_ENABLE_ONEDNN_OPTS that importing keras_transformer sets; its command may begin with
`env TF_ENABLE_ONEDNN_OPTS=1`.

decoding.py, training.py, products.py and limit.py are such programs themselves when the environment variable
BENCH_PAIRED is set.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

PAIRED = "BENCH_PAIRED"


def command_line(description: str) -> argparse.ArgumentParser:
    """What every script here can be told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=positive, default=5, metavar="N", help="of every figure (%(default)s)")
    return parser


def add_works(parser: argparse.ArgumentParser, names: list[str]):
    """Which of the works are measured, and beside whom."""
    parser.add_argument("--work", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=_peer,
        metavar="NAME=COMMAND",
        help="a program that does the same work, measured in alternation; {work} in it is the name of the work",
    )


def positive(text):
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {number}")
    return number


def _peer(text):
    name, equals, command = text.partition("=")
    if not equals or shutil.which(next(iter(shlex.split(command)), "")) is None:
        raise argparse.ArgumentTypeError(f"must be NAME=COMMAND, and the command must exist. Received: {text}")
    return name, command


def measure(name: str, unit: str, repeat: Callable[[], float], options, **about):
    """Repeats and reports one piece of work; with peers, in alternation with each of them.

    Args:
        name: of the work.
        unit: of the rate.
        repeat: makes one repeat and returns its rate.
        options: of `command_line` and `add_works`.
        **about: what else is reported; a function is asked when the repeats are made.
    """
    if os.environ.get(PAIRED):
        return answer(repeat)

    def known():
        found = {key: value() if callable(value) else value for key, value in about.items()}
        return {**found, "peak_memory_mib": peak_memory()}

    repeat()
    if not options.peer:
        rates = [repeat() for _ in range(options.repeats)]
        report({"work": name, "unit": unit, **spread(rates), **known()})
    for peer, command in options.peer:
        ours, theirs = alternate(repeat, command.replace("{work}", name), options.repeats)
        ratios = spread([a / b for a, b in zip(ours, theirs, strict=True)])
        note = f"{ratios['median']:.2f} x {peer} ({ratios['min']:.2f} to {ratios['max']:.2f})"
        record = {"work": name, "unit": unit, **spread(ours), **known()}
        report({**record, "peer": peer, "peer_rate": spread(theirs), "ratio": ratios}, note)


def answer(repeat):
    """Takes part in somebody else's measurement."""
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"rate": repeat()}), flush=True)


def alternate(repeat, command, repeats):
    """The rates of ours and of the other program, in turn, each beginning every other time."""
    environment = {**os.environ, PAIRED: "1"}
    environment.pop("TF_ENABLE_ONEDNN_OPTS", None)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(shlex.split(command), **pipes, bufsize=0, env=environment) as process:

        def theirs():
            with contextlib.suppress(BrokenPipeError):  # it has ended, as its missing answer will tell
                process.stdin.write(b"go\n")
            return _read(process, "rate")

        _read(process, "ready")
        repeat(), theirs()
        pairs = []
        for number in range(repeats):
            pairs.append((repeat(), theirs()) if number % 2 == 0 else (theirs(), repeat())[::-1])
        process.stdin.close()
    return zip(*pairs, strict=True)


def _read(process, key):
    for line in process.stdout:
        if line.startswith(b"{") and key in (message := json.loads(line)):
            return message[key]
    raise SystemExit(f"The other program has ended, with exit code {process.wait()}: {shlex.join(process.args)}")


def timed(function) -> float:
    """Seconds of a call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def spread(values) -> dict:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 4) for name, value in found.items()}


def peak_memory() -> float:
    """The most memory that this process has had, MiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))


def report(record: dict, note: str = ""):
    """One JSON line on standard output, and a row of a table for people, which ends in `note`, on standard error."""
    print(json.dumps({**record, "date": str(date.today()), "commit": commit(), "machine": machine()}), flush=True)
    row = f"{record['work']:<24} {record['median']:>12,.3f} {record['unit']}"
    row += f" ({record['min']:,.3f} to {record['max']:,.3f})   {note}"
    print(row.rstrip(), file=sys.stderr, flush=True)


def commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def cores() -> int:
    """The logical processors that this process may use: TensorFlow and XLA start as many threads, and so do peers."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return f"{cores()} x {model}"
