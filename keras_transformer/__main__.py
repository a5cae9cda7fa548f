"""python -m keras_transformer COMMAND, also installed as the console command keras-transformer.

Exit codes: see keras_transformer_cli/errors.py.
"""

import argparse
import sys

import keras
import tensorflow as tf

from keras_transformer import __version__
from keras_transformer.commands import align, average, evaluate, plot, score, train, translate
from keras_transformer_cli.errors import exit_code_of

COMMANDS = {
    "train": (train, "train a model from pairs of text"),
    "translate": (translate, "translate lines of text"),
    "score": (score, "say how likely given translations are"),
    "align": (align, "say which words of sources and given translations belong together"),
    "evaluate": (evaluate, "score translations of a test set"),
    "average": (average, "average several checkpoints into one model"),
    "plot": (plot, "draw attention, learning curves, the schedule, the positions"),
}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="keras-transformer", description="The Transformer for Keras 3 on TensorFlow.")
    versions = f"%(prog)s {__version__} (TensorFlow {tf.__version__}, Keras {keras.__version__})"
    parser.add_argument("--version", action="version", version=versions)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        module.add_arguments(command)
        command.set_defaults(run=module.run, refuse=command.error)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:  # by the command, whose options the message then shows
        options.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    return exit_code_of(options.run, options)


if __name__ == "__main__":
    sys.exit(main())
