"""The console command keras-transformer, and what every command here needs before TensorFlow is imported.

It stands outside of keras_transformer, because importing anything from that takes seconds, in which Ctrl-C may be
pressed. So it knows the standard library alone.
"""

from keras_transformer_cli.importing import asks_for_training, importing_tensorflow


def main() -> int:
    with importing_tensorflow(with_warnings=asks_for_training()):
        from keras_transformer.__main__ import main
    return main()
