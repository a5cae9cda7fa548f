"""How a command ends: what it says of an error, and its exit code.

0 done, 1 error, 2 wrong options or a wrong configuration, 130 interrupted (Ctrl-C), 141 nobody reads the output;
training has 130 and 143 for a run that a signal has stopped. An error that the user can mend is reported without a
traceback. Errors of our own say the code: their class has an `exit_code`.
"""

import contextlib
import re
import sys
from collections.abc import Callable

from keras_transformer_cli.interruption import keep_interrupt
from keras_transformer_cli.streams import open_streams, show_any_character, silence

MENDABLE = (OSError, ValueError, ImportError, MemoryError)


def exit_code_of(run: Callable[..., int], *arguments) -> int:
    """Runs a command; returns its exit code."""
    open_streams()  # before any file is opened; as `python -m keras_transformer`, imports come before
    show_any_character()
    try:
        with keep_interrupt():
            code = run(*arguments)
            if sys.stdout is not None:
                sys.stdout.flush()  # here a reader that is gone is found out
            return code
    except BrokenPipeError:
        if sys.stdout is not None:
            silence(sys.stdout)
        return 141
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        out_of_memory = type(error).__name__ == "ResourceExhaustedError"  # TensorFlow's, which need not be there
        code = getattr(error, "exit_code", 1 if out_of_memory or isinstance(error, MENDABLE) else None)
        if code is None:
            raise
        message = reason(str(error)) if out_of_memory else str(error)
        with contextlib.suppress(OSError):  # nobody reads it
            print(f"error: {message or type(error).__name__}", file=sys.stderr)
        return code


def reason(message: str) -> str:
    """What an error of TensorFlow's says, in one line, without the trace before it and the names of its operations.

    >>> reason("Graph execution error:\\n\\nDetected at node f\\n\\n{{function_node f}} Socket closed [Op:f] name: ")
    'Socket closed'
    """
    text = re.sub(r"\{\{.*?\}\} ?|\s*\[Op:.*|\[\[.*", "", message.split("\n\n")[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    goes_on = bool(lines) and lines[0].endswith((":", "found."))
    return " ".join(lines[: 2 if goes_on else 1])
