"""The console command keras-transformer, and what every command here does before it imports TensorFlow.

It stands outside of the package because importing anything of that takes seconds, in which somebody may press Ctrl-C.
"""

import contextlib
import os
import signal
import sys
import threading


def main() -> int:
    if sys.argv[1:2] != ["train"]:  # whose GPU may be missing, which TensorFlow says in these lines
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with interruption_ends():
        from keras_transformer.__main__ import main
    return main()


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
