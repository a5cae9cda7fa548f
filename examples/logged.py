"""A command of a longer series: what it says goes into a file, and a signal stops it with its state saved."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_logged(command, folder):
    """Runs a command, what it says at the end of FOLDER.log. Ends with its exit code where it does not succeed."""
    log = folder.with_name(f"{folder.name}.log")
    with open(log, "ab") as file, subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT) as child:
        before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        code = None
        while code is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C has reached the child too: it saves its state
                code = child.wait()
        signal.signal(signal.SIGTERM, before)
    if code in (130, 143):
        print(f"Stopped by a signal in {folder.name}. The same command goes on.", file=sys.stderr)
        raise SystemExit(code)
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace").split("\n")[-12:]
        print("\n".join(tail), f"{folder.name} stopped with exit code {code}: see {log}", sep="\n", file=sys.stderr)
        raise SystemExit(code if code > 0 else 128 - code)
