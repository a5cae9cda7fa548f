"""The console command keras-transformer, and what every command here does before it imports TensorFlow.

It stands outside of the package because importing anything of that takes seconds, in which somebody may press Ctrl-C.
"""

import contextlib
import os
import signal
import sys
import threading
import time

NOTES = (b"I0000 ", b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")


def main() -> int:
    # Of training also warnings are shown: why there is no GPU, for example.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1" if sys.argv[1:2] == ["train"] else "3")
    with interruption_ends(), without_notes():
        from keras_transformer.__main__ import main
    return main()


@contextlib.contextmanager
def without_notes():
    """What native code notes on standard error while it is being imported is left out; warnings and errors are not.

    TensorFlow writes such notes whatever level it is given. A process of its own reads them, from which nothing is lost
    when the import crashes.
    """
    if sys.stderr is None:  # closed
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
    """Until nobody can write any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not line.startswith(NOTES):
                    os.write(2, line)
    finally:
        os._exit(0)


def _wait(process, seconds=1.0):
    """No longer, for something that was started meanwhile may hold standard error open."""
    for _ in range(int(seconds / 0.01)):
        if os.waitpid(process, os.WNOHANG)[0]:
            return
        time.sleep(0.01)


@contextlib.contextmanager
def interruption_ends():
    """Ctrl-C ends the process on the spot: native code that is being imported makes other errors of it, or aborts."""
    with _on_interruption(lambda *_: os._exit(130)):
        yield


@contextlib.contextmanager
def interruption_counts():
    """Ctrl-C is a KeyboardInterrupt, whatever native code makes of it: another error, or nothing. A second one ends."""
    came = []

    def interrupt(*_):
        if came:
            os._exit(130)
        came.append(True)
        raise KeyboardInterrupt

    with _on_interruption(interrupt):
        try:
            yield
        except Exception as error:
            if came:
                raise KeyboardInterrupt from error
            raise
        if came:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _on_interruption(handler):
    before = signal.getsignal(signal.SIGINT)
    is_ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if is_ours:  # else somebody ignores it, or has a way of his own
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
