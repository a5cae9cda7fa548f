"""Console output. A closed terminal or pipe silences it and does not end the run."""

import errno
import io
import os
import re
import sys


def say(text: str = "", *, end: str = "\n", stream=None):
    """Shows a text at once, on standard output unless `stream` is another one.

    Once nobody reads any more (a `tee` that Ctrl-C has ended, a terminal that was closed), the stream stays silent.
    What cannot be written for another reason, such as a full disk, is left out.
    """
    stream = stream or sys.stdout
    if stream is None:  # closed, as for a daemon
        return
    try:
        print(text, end=end, file=stream, flush=True)
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO):
            silence(stream)


def silence(stream):
    """Discards what is written from now on. At its end Python flushes what it could not write, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def warn(text: str = "", *, end: str = "\n"):
    """`say` on standard error: for progress, and for what is not the result."""
    if sys.stderr is not None:
        say(text, end=end, stream=sys.stderr)


def reason(message: str) -> str:
    """What an error of TensorFlow's says, in one line, without the trace before it and the names of its operations.

    >>> reason("Graph execution error:\\n\\nDetected at node f\\n\\n{{function_node f}} Socket closed [Op:f] name: ")
    'Socket closed'
    """
    text = re.sub(r"\{\{.*?\}\} ?|\s*\[Op:.*|\[\[.*", "", message.split("\n\n")[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    goes_on = bool(lines) and lines[0].endswith((":", "found."))
    return " ".join(lines[: 2 if goes_on else 1])


def show_any_character():
    """Lets standard output and error write what their encoding does not have: é as \\xe9."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # and not what stands for it in a notebook
            stream.reconfigure(errors="backslashreplace")
