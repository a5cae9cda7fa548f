"""Trains a Transformer from pairs of text to a finished, scored model in one folder.

    python train_keras.py                                                       # the built-in corpus, runs/demo
    python train_keras.py --set data.train='["a.en","a.de"]' --workdir runs/a   # your own two files
    python train_keras.py --recipe examples/wmt14_en_de/recipe.toml --workdir runs/wmt14_en_de
    python train_keras.py --help

An interrupted run (Ctrl-C, SIGTERM, SIGKILL, power) goes on where it was when the same command is given again.
"""

import argparse
import sys

from keras_transformer_cli.errors import exit_code_of
from keras_transformer_cli.importing import importing_tensorflow

with importing_tensorflow():
    from keras_transformer.commands import train

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    train.add_arguments(parser)
    sys.exit(exit_code_of(train.run, parser.parse_args()))
