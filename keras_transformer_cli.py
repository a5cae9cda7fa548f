"""The console command keras-transformer, and what every command here does before it imports TensorFlow.

It stands outside of the package because importing anything of that takes seconds, in which somebody may press Ctrl-C.
"""

import contextlib
import os
import signal


def main() -> int:
    with interruption_ends():
        from keras_transformer.__main__ import main
    return main()


@contextlib.contextmanager
def interruption_ends():
    """Ctrl-C ends the process on the spot: native code that is being imported makes other errors of it, or aborts."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else somebody ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
