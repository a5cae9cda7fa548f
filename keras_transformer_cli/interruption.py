"""What Ctrl-C does while native code runs, which makes other errors of it, or aborts."""

import contextlib
import os
import signal
import threading

_replaceable = [signal.default_int_handler]  # handlers that are Python's or ours; anybody else's stays


@contextlib.contextmanager
def exit_on_interrupt():
    """Inside, Ctrl-C ends the process at once: native code that is being imported would raise other errors or abort."""
    with _handling(lambda *_: os._exit(130)):
        yield


@contextlib.contextmanager
def killed_by_interrupt():
    """Inside, Ctrl-C kills the process even while native code waits and lets no handler of Python's run."""
    with _handling(signal.SIG_DFL):
        yield


@contextlib.contextmanager
def keep_interrupt():
    """Inside, Ctrl-C is a KeyboardInterrupt even where native code makes another error of it, or nothing.

    A second one ends the process.
    """
    came = []

    def interrupt(*_):
        if came:
            os._exit(130)
        came.append(True)
        raise KeyboardInterrupt

    with _handling(interrupt):
        try:
            yield
        except Exception as error:
            if came:
                raise KeyboardInterrupt from error
            raise
        if came:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _handling(handler):
    before = signal.getsignal(signal.SIGINT)
    if before not in _replaceable or threading.current_thread() is not threading.main_thread():
        yield  # it is ignored, or somebody has another handler
        return
    _replaceable.append(handler)
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _replaceable.remove(handler)
