"""What comes before TensorFlow is imported and while it is: settings that it reads then, and its notes."""

import contextlib
import os
import platform
import signal
import sys
import time

from keras_transformer_cli.interruption import exit_on_interrupt
from keras_transformer_cli.streams import open_streams

NOTES = (b"I0000 ", b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")


@contextlib.contextmanager
def importing_tensorflow(with_warnings=True):
    """The context in which a command imports it: Ctrl-C ends the process, Keras runs on TensorFlow, and notes are left
    out; without `with_warnings` warnings too, in all of the process, unless its user has set TF_CPP_MIN_LOG_LEVEL."""
    if not with_warnings:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    use_tensorflow()
    with exit_on_interrupt(), without_notes():
        yield


def asks_for_training() -> bool:
    """Whether the command is `train`, which shows TensorFlow's warnings: why there is no GPU, for example."""
    return sys.argv[1:2] == ["train"]


def is_starting(package: str) -> bool:
    """Whether this process is `python -m PACKAGE` and has not come to its __main__ yet."""
    if sys.argv[:1] != ["-m"]:
        return False
    word = sys.orig_argv[-len(sys.argv)]  # the last before the arguments: the package, or -mPACKAGE
    return word == package or (word.startswith("-") and word.endswith(f"m{package}"))


def use_tensorflow():
    """Lets Keras run on TensorFlow in this process, whatever the user has chosen for other programs."""
    os.environ["KERAS_BACKEND"] = "tensorflow"


def use_onednn():
    """Lets TensorFlow, if it is imported afterwards, multiply by oneDNN on every x86 processor, unless that is set.

    By itself it does so only where there are instructions for neural networks, VNNI for example (docs/decisions.md).
    """
    if platform.machine() == "x86_64" and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@contextlib.contextmanager
def without_notes():
    """Leaves out what native code notes on standard error while it is being imported; warnings and errors remain.

    TensorFlow writes some of them whatever level it is given. They are read by a process of its own, so that nothing is
    lost when the import crashes. The level that the others follow stays set, for this process and those it starts.
    """
    open_streams()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # warnings and errors
    if "tensorflow" in sys.modules:  # there is nothing more to be noted
        yield
        return
    reading, writing = os.pipe()
    reader = os.fork()
    if not reader:
        os.close(writing)
        _pass_on(reading)
    os.close(reading)
    shown = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        _wait(reader)


def _pass_on(reading):
    """Passes on lines other than notes, until nobody can write any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not line.startswith(NOTES):
                    os.write(2, line)
    finally:
        os._exit(0)


def _wait(process, seconds=1.0):
    """Waits for a process, but not for long: something that was started meanwhile may hold standard error open."""
    for _ in range(int(seconds / 0.01)):
        if os.waitpid(process, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
