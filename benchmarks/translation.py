"""`keras-transformer translate`: the first line, a whole file, what stands around the search, memory.

python benchmarks/translation.py --workdir runs/demo                 # sentences of the built-in grammar
python benchmarks/translation.py --workdir runs/a --input a.en --lines 4000 40000

    first line     seconds from the start of the process to the answer of the first line, typed in
    whole file     lines a second of one process, and its peak memory; the last file over the first shows what grows
    overhead       the share of the time outside of the search: reading, tokenising, sorting, batching, writing
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import measure

from keras_transformer.commands import translate
from keras_transformer.data.demo import demo_pairs
from keras_transformer.translator import Translator


def main():
    parser = measure.command_line(__doc__)
    parser.set_defaults(repeats=3)
    parser.add_argument("--workdir", type=Path, default=Path("runs/demo"), help="of a finished run (%(default)s)")
    parser.add_argument("--input", type=Path, help="text, repeated as often as needed; without it the built-in grammar")
    parser.add_argument(
        "--lines", type=measure.positive, nargs="+", default=[4000, 40_000], help="of the files (%(default)s)"
    )
    options = parser.parse_args()
    if not (options.workdir / "model.keras").is_file():
        parser.error(f"--workdir must be a finished run. Received: {options.workdir}, which has no model.keras.")
    if options.input and not options.input.is_file():
        parser.error(f"--input must be a file. Received: {options.input}.")
    with tempfile.TemporaryDirectory() as folder:
        files = [write(Path(folder, f"{number}.txt"), options.input, number) for number in options.lines]
        first = [first_line(options.workdir) for _ in range(options.repeats)]
        measure.report({"work": "first line", "unit": "s", **measure.spread(first)})
        for number, path in zip(options.lines, files, strict=True):
            seconds, memory = whole_file(options.workdir, path)
            rate = measure.spread([number / seconds])
            about = {"lines": number, "seconds": round(seconds, 1), "peak_memory_mib": memory}
            measure.report({"work": f"file of {number:,} lines", "unit": "lines/s", **rate, **about})
        shares = overhead(options.workdir, files[0], options.repeats)
        measure.report({"work": "overhead", "unit": "%", **measure.spread(shares), "lines": options.lines[0]})


def write(path, source, number):
    """A file of `number` lines."""
    if source is None:
        lines = [english for english, _ in demo_pairs("test", min(number, 4000))]
    else:
        lines = source.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    path.write_text("".join(f"{lines[i % len(lines)]}\n" for i in range(number)), encoding="utf-8")
    return path


def command(workdir, *arguments):
    return [sys.executable, "-m", "keras_transformer", "translate", "--workdir", str(workdir), *map(str, arguments)]


def first_line(workdir):
    """Seconds until a new process has answered one line."""
    began = time.perf_counter()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command(workdir, "--buffer-lines", 1), **pipes) as process:
        process.stdin.write(b"Anna sleeps.\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise SystemExit(
                f"{workdir} must be a finished run. Received: exit code {process.wait()} of a translation."
            )
        seconds = time.perf_counter() - began
        process.stdin.close()
    return seconds


def whole_file(workdir, path):
    """Seconds of a process that translates the file, and its peak memory in MiB."""
    output = path.with_suffix(".out")
    began = time.perf_counter()
    process = subprocess.Popen(command(workdir, "--input", path, "--output", output), stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # which says how much memory it took
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or output.read_bytes().count(b"\n") != path.read_bytes().count(b"\n"):
        raise SystemExit(f"A file must be translated line by line. Received: exit code {process.returncode}.")
    return seconds, round(usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))


def overhead(workdir, path, repeats):
    """The share of the command's time, once it is warm, that passes outside of the search, in %."""
    options = _options(["--workdir", str(workdir), "--input", str(path), "--output", str(path.with_suffix(".out"))])
    translator = Translator.load(workdir)
    search, inside = translator.searching(), []

    def timed_search(ids, ahead=0):
        found = []
        inside.append(measure.timed(lambda: found.append(search(ids, ahead))))
        return found[0]

    translator.searching = lambda num_hypotheses: timed_search
    translate.load_translator = lambda options: translator
    shares = []
    for number in range(1 + repeats):
        inside.clear()
        whole = measure.timed(lambda: translate.run(options))
        if number:  # the first one compiles
            shares.append(100 * (1 - sum(inside) / whole))
    return shares


def _options(arguments):
    parser = argparse.ArgumentParser()
    translate.add_arguments(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
