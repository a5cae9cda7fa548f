"""A finished run as a small folder, which `keras-transformer translate --workdir` takes: a translator to give away.

    python examples/tatoeba_en_de/pack.py --workdir runs/tatoeba_en_de --to examples/tatoeba_en_de/model

The weights keep the eleven binary digits of half precision and are compressed, which halves the file; it stays an
ordinary model.keras in float32. The sections data, model and decode of the configuration are kept, with files named
without their folders: nothing is said about the machine that it was made on.
"""

import argparse
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np

from keras_transformer_cli import without_notes

with without_notes():
    import keras

    from export.metadata import without_folders
    from keras_transformer.files import filling, may_be_filled, write_json
    from keras_transformer.training.workdir import Workdir
    from keras_transformer.translator import FILES

LARGEST = 8_000_000  # bytes of everything: more does not belong into a repository


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", metavar="FOLDER", required=True, help="a finished run")
    parser.add_argument("--to", metavar="FOLDER", required=True, help="an empty folder, or a new one")
    options = parser.parse_args(arguments)
    run, folder = Workdir(options.workdir), Path(options.to)
    if not run.model_path.is_file():
        parser.error(f"--workdir must be a finished run, with a model.keras. Received: {run.path}, which has none.")
    if not may_be_filled(folder, FILES):
        parser.error(f"--to must be an empty folder. Received: {folder}, which is not.")
    try:
        config = run.load_config().to_dict()
        config["data"]["test"] = None  # it is not in the folder
        with filling(folder, FILES) as aside:
            kept = {key: config[key] for key in ("data", "model", "decode")}
            write_json(aside / "config.json", without_folders(kept))
            for path in run.path.glob("*.model"):  # one tokenizer, or two
                shutil.copy(path, aside)
            pack(run.model_path, aside / "model.keras")
    except (ValueError, OSError) as error:  # a damaged file, a full disk
        parser.error(str(error))
    size = sum(path.stat().st_size for path in folder.iterdir())
    remark = f", more than the {LARGEST:,} that a repository should take" if size > LARGEST else ""
    print(f"{folder}: {size:,} bytes{remark}")
    return int(size > LARGEST)


def pack(path, packed):
    """Rounds the weights of a .keras file and compresses it."""
    model = keras.saving.load_model(path, compile=False)
    for variable in model.trainable_variables:
        variable.assign(variable.numpy().astype(np.float16).astype(np.float32))
    plain = packed.with_name("plain.keras")
    model.save(plain)
    deflated = dict(compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", **deflated) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    plain.unlink()


if __name__ == "__main__":
    sys.exit(main())
