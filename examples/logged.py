"""Commands of a longer series: what they say goes into files, and a signal stops them with their state saved."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)  # exit codes, with and without a state that is saved


def training_command(folder, settings, recipe=None) -> list:
    """train_keras.py in FOLDER, with some KEY=VALUE beside the recipe."""
    words = ["--workdir", folder, *(word for setting in settings for word in ("--set", setting))]
    return [sys.executable, ROOT / "train_keras.py", *(("--recipe", recipe) if recipe else ()), *words]


def evaluation_command(folder, source, reference, output, json, other=None) -> list:
    """keras_transformer evaluate with the model in FOLDER, in comparison with another output where there is one."""
    command = [sys.executable, "-m", "keras_transformer", "evaluate", "--workdir", folder]
    command += ["--source", source, "--reference", reference, "--output", output, "--json", json]
    return [*command, "--other", other] if other else command


def run_logged(command, folder):
    """Runs a command, what it says at the end of FOLDER.log. Ends with its exit code where it does not succeed."""
    run_together([(command, folder)])


def run_together(jobs):
    """The same for some commands at the same time, each on its share of the cores; where one fails, all are stopped.

    Args:
        jobs: (command, folder) of each.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment, children = {**os.environ, "PYTHONPATH": path}, []
    with passed_on(signal.SIGTERM, children):
        try:
            for (command, folder), cores in zip(jobs, shares(len(jobs)), strict=True):
                with open(folder.with_name(f"{folder.name}.log"), "ab") as log, on_cores(cores):
                    child = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
                children.append(child)
        finally:
            number = wait(children, stop=len(children) < len(jobs))
    if number is not None:
        end(jobs[number][1], children[number].returncode)


def wait(children, stop=False) -> int | None:
    """Waits for all, and says which was the first that did not succeed. Where that failed, the others are stopped."""
    failed = None
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C has reached the children too: they save their state
            codes = [child.poll() for child in children]
            if failed is None and any(codes):
                failed = next(number for number, code in enumerate(codes) if code)
                stop |= codes[failed] not in STOPPED  # a signal has reached the others too
            if None not in codes:
                return failed
            if stop:
                stop = False
                for child in children:
                    child.terminate()  # nothing where it has ended
            time.sleep(0.1)


def end(folder, code):
    status = code if code > 0 else 128 - code  # as a shell has it
    if code in STOPPED:
        print(f"Stopped by a signal in {folder.name}. Run the same command to go on.", file=sys.stderr)
        raise SystemExit(status)
    log = folder.with_name(f"{folder.name}.log")
    tail = log.read_text(encoding="utf-8", errors="replace").split("\n")[-12:]
    print("\n".join(tail), f"{folder.name} stopped with exit code {code}: see {log}", sep="\n", file=sys.stderr)
    raise SystemExit(status)


@contextlib.contextmanager
def passed_on(number, children):
    """Sends a signal that comes in the meantime to the children, and goes on."""
    before = signal.signal(number, lambda *_: [child.terminate() for child in children])
    try:
        yield
    finally:
        signal.signal(number, before)


# --- cores


def shares(number) -> list[set]:
    """The cores of this process in so many parts; all of them for each where there are too few, or none is known."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [set(cores[i::number]) if len(cores) >= number else set(cores) for i in range(number)]


@contextlib.contextmanager
def on_cores(cores):
    """What is started here runs on these cores; on all where none is given."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
