"""Runs a command and turns its errors into exit codes, whichever script called it.

0 done, 1 error, 2 options or a configuration that cannot be, 130 interrupted (Ctrl-C), 141 nobody reads the
output; training has 130 and 143 for a run that a signal has stopped. An error that the user can mend is reported in one
line, without a traceback.
"""

import sys
from collections.abc import Callable

from keras_transformer.config import ConfigError
from keras_transformer.screen import show_any_character, silence, warn
from keras_transformer_cli import interruption_counts, open_streams


def exit_code_of(run: Callable[..., int], options) -> int:
    """Runs a command; returns its exit code."""
    open_streams()  # before any file is opened; as `python -m keras_transformer`, imports come before
    show_any_character()
    try:
        with interruption_counts():
            code = run(options)
            if sys.stdout is not None:
                sys.stdout.flush()  # here a reader that is gone is found out
            return code
    except BrokenPipeError:
        silence(sys.stdout)
        return 141
    except KeyboardInterrupt:
        return 130
    except _mendable() as error:
        warn(f"error: {str(error) or type(error).__name__}")
        return 2 if isinstance(error, ConfigError) else 1


def _mendable():
    import tensorflow as tf

    from export.versions import ExportError
    from keras_transformer.training.callbacks import DivergedError
    from keras_transformer.training.checkpoints import CheckpointError
    from keras_transformer.training.strategy import LostWorkerError

    ours = CheckpointError, DivergedError, ExportError, LostWorkerError
    return *ours, OSError, ValueError, ImportError, MemoryError, tf.errors.ResourceExhaustedError
