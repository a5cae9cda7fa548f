"""The standard streams of a process, which may be closed, read by nobody, or of an encoding that has few characters."""

import io
import os
import sys


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


def show_any_character():
    """Lets standard output and error write what their encoding does not have: é as \\xe9."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and not what stands for it in a notebook
            stream.reconfigure(errors="backslashreplace")


def silence(stream):
    """Discards what is written from now on. At its end Python flushes what it could not write, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
