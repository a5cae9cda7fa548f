"""Publishes copies of a SavedModel, slowly, each in a process of its own that may be killed.

    python writer.py SAVED_MODEL

For every line of its input it starts a process and writes its number. "aside served/demo" has it publish the next
version there, "inside served/demo" has it write the next version as exports must not.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import keras_transformer.files  # noqa: F401 - before the processes part, because it takes seconds
from export.versions import free_version, publish


def copy(source, folder):
    for path in [source, *sorted(source.rglob("*"))]:
        target = folder / path.relative_to(source)
        if path.is_dir():
            target.mkdir()
        else:
            shutil.copyfile(path, target)
        time.sleep(0.01)  # for a signal


def publish_one(source, to, how):
    if how == "aside":
        publish(to, None, lambda folder: copy(source, folder))
    else:
        copy(source, to / str(free_version(to, None)))


def main(source):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    for line in sys.stdin:
        process = os.fork()
        if not process:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                how, to = line.rstrip("\n").split(" ", 1)
                publish_one(source, Path(to), how)
            finally:
                os._exit(0)
        print(process, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
