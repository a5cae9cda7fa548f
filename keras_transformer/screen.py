"""Console output. A closed terminal or pipe silences it and does not end the run."""

import errno
import sys

from keras_transformer_cli.streams import silence


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
    except UnicodeEncodeError:  # where nobody has called `show_any_character`
        say(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding), end=end, stream=stream)
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO):
            silence(stream)


def warn(text: str = "", *, end: str = "\n"):
    """`say` on standard error: for progress, and for what is not the result."""
    if sys.stderr is not None:
        say(text, end=end, stream=sys.stderr)
