"""A finished run as a small folder, which `keras-transformer translate --workdir` takes: a translator to give away.

    python examples/tatoeba_en_de/pack.py --workdir runs/tatoeba_en_de --to examples/tatoeba_en_de/model

The weights keep the eleven binary digits of half precision and are compressed, which halves the file; it stays an
ordinary model.keras in float32. The sections data, model and decode of the configuration are kept, with files named
without their folders: nothing is said about the machine that it was made on.
"""

import argparse
import sys
import zipfile
from pathlib import Path

import numpy as np

from keras_transformer_cli.importing import importing_tensorflow

with importing_tensorflow():
    from export.metadata import without_folders
    from keras_transformer import model_folder

LARGEST = 8_000_000  # bytes of everything: more does not belong into a repository


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", metavar="FOLDER", required=True, help="a finished run")
    parser.add_argument("--to", metavar="FOLDER", required=True, help="an empty folder, or a new one")
    options = parser.parse_args(arguments)
    folder = Path(options.to)
    if not model_folder.is_free(folder):
        parser.error(f"--to must be an empty folder. Received: {folder}, which is not.")
    try:
        config, tokenizers, model = model_folder.load(Path(options.workdir))
        config = config.replace(data={"test": None}).to_dict()  # it is not in the folder
        kept = without_folders({name: config[name] for name in model_folder.SECTIONS})
        round_weights(model)
        model_folder.write(folder, kept, tokenizers, model, save=save_compressed)
    except (ValueError, OSError) as error:  # a damaged file, a full disk
        parser.error(str(error))
    size = sum(path.stat().st_size for path in folder.iterdir())
    remark = f", more than the {LARGEST:,} that a repository should take" if size > LARGEST else ""
    print(f"{folder}: {size:,} bytes{remark}")
    return int(size > LARGEST)


def round_weights(model):
    for variable in model.trainable_variables:
        variable.assign(variable.numpy().astype(np.float16).astype(np.float32))


def save_compressed(model, path):
    plain = path.with_name("plain.keras")
    model.save(plain)
    deflated = dict(compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", **deflated) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    plain.unlink()


if __name__ == "__main__":
    sys.exit(main())
