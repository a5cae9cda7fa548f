"""The console command keras-transformer, and what every command here does before it imports TensorFlow.

It stands outside of the package, because importing anything from that takes seconds, in which Ctrl-C may be pressed.
"""

import contextlib
import os
import platform
import signal
import sys
import threading
import time

NOTES = (b"I0000 ", b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")


def main() -> int:
    if sys.argv[1:2] != ["train"]:  # which shows warnings too: why there is no GPU, for example
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with importing_tensorflow():
        from keras_transformer.__main__ import main
    return main()


@contextlib.contextmanager
def importing_tensorflow():
    """What a command imports it in: Ctrl-C ends the process, notes are left out, and Keras runs on TensorFlow."""
    use_tensorflow()
    with interruption_ends(), without_notes():
        yield


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


def open_streams():
    """Opens the null device as every standard stream that is closed.

    Otherwise the next file to be opened would get the stream's number, and what native code writes to standard error
    would come to stand in that file. `sys.stdin` and `sys.stdout` stay None, which says that they are closed; to
    `sys.stderr` everybody may write, while `print(file=None)` would write to standard output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


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


@contextlib.contextmanager
def interruption_ends():
    """Inside, Ctrl-C ends the process at once: native code that is being imported would raise other errors or abort."""
    with _on_interruption(lambda *_: os._exit(130)):
        yield


@contextlib.contextmanager
def interruption_counts():
    """Inside, Ctrl-C is a KeyboardInterrupt even where native code makes another error of it, or nothing.

    A second one ends the process.
    """
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
    if is_ours:  # else it is ignored, or somebody has another handler
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    sys.exit(main())
