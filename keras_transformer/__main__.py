"""python -m keras_transformer COMMAND, also installed as the console command keras-transformer.

Exit codes: 0 done, 1 error, 2 wrong usage or configuration, 130 interrupted (Ctrl-C), 141 nobody reads the output.
"""

import argparse
import os
import sys

import tensorflow as tf

from keras_transformer.commands import average, evaluate, plot, score, train, translate
from keras_transformer.config import ConfigError
from keras_transformer_cli import interruption_counts

COMMANDS = {
    "train": (train, "train a model from pairs of text"),
    "translate": (translate, "translate lines of text"),
    "score": (score, "say how likely given translations are"),
    "evaluate": (evaluate, "score translations of a test set"),
    "average": (average, "make a model of several checkpoints"),
    "plot": (plot, "draw attention, learning curves, the schedule, the positions"),
}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="keras-transformer", description="The Transformer for Keras 3 on TensorFlow.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    try:
        with interruption_counts():
            return options.run(options)
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError, ImportError, MemoryError, tf.errors.ResourceExhaustedError) as error:
        print(f"error: {str(error) or type(error).__name__}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
