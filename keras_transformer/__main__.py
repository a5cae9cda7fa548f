"""python -m keras_transformer COMMAND, also installed as the console command keras-transformer."""

import argparse
import sys

from keras_transformer.commands import evaluate, train, translate

COMMANDS = {
    "train": (train, "train a model from pairs of text"),
    "translate": (translate, "translate lines of text"),
    "evaluate": (evaluate, "score translations of a test set"),
}


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="keras-transformer", description="The Transformer for Keras 3 on TensorFlow.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
