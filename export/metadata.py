"""assets.extra/metadata.json: what a version is, for those who find it on a server.

It does not say when or where it was made: two exports of one run have the same metadata, and files of a corpus are
named without their folders.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from export.contents import operations, signatures

PATH = Path("assets.extra", "metadata.json")  # below the folder of a version
FORMAT = 1  # of metadata.json
NO_LANGUAGE = {"txt", "src", "tgt", "trg", "ref", "raw", "tok", "bpe"}  # suffixes of text files that name no language


def write(folder: Path, workdir: Path, translator, limits: dict, others: Sequence[Path] = ()):
    """Writes the metadata of the SavedModel in `folder`, which was made of the runs in `workdir` and `others`."""
    import tensorflow as tf
    import tensorflow_text

    from keras_transformer.files import write_json

    run, tokenizers = _of_run(workdir), translator.tokenizers
    path = folder / PATH
    path.parent.mkdir(exist_ok=True)
    metadata = {
        "format": FORMAT,
        "languages": languages(run["config"].get("data", {})),
        "tensorflow": tf.__version__,
        "tensorflow_text": tensorflow_text.__version__,
        "signatures": signatures(folder),
        "operations": operations(folder),
        "limits": limits,
        "decode": translator.decode.to_dict(),
        "tokenizers": {"source": tokenizers.source.model_hash, "target": tokenizers.target.model_hash},
        "num_parameters": translator.model.count_params(),
        **run,
        "ensemble": [_of_run(other) for other in others],  # whose models translate together with that of the run
    }
    write_json(path, metadata)


def _of_run(workdir):
    """What is told of a run."""
    from keras_transformer.files import read_json

    return {
        "config": without_folders(json.loads((workdir / "config.json").read_text(encoding="utf-8"))),
        "model": read_json(workdir / "model.json") or None,  # which weights these are, and all their scores
    }


def read(folder: Path) -> dict:
    """The metadata of the version in `folder`; an empty object where it has none."""
    from keras_transformer.files import read_json

    return read_json(folder / PATH)


def without_folders(config):
    """A configuration whose files and runs are named without the folders that they lie in."""
    from keras_transformer.config import PATHS

    return {section: _without_folders(fields, PATHS.get(section, ())) for section, fields in config.items()}


def _without_folders(fields, with_paths):
    return {key: _base_names(value) if key in with_paths else value for key, value in fields.items()}


def _base_names(paths):
    if isinstance(paths, list | tuple):
        return [_base_names(path) for path in paths]
    return paths if paths is None or paths.startswith("tfds:") else os.path.basename(paths)


def languages(data: dict) -> dict | None:
    """{"source": "en", "target": "de"} where the `data` of a configuration tells it, else None."""
    pair = _languages(data.get("train"))
    if pair is None:
        return None
    source, target = reversed(pair) if data.get("reverse") else pair
    return {"source": source, "target": target}


def _languages(train):
    if train is None:
        return None
    if train == "demo":
        return "en", "de"
    if isinstance(train, str):  # "tfds:wmt14_translate/en-de"; a .tsv file does not say
        pair = tuple(train.rpartition("/")[2].split("-")) if train.startswith("tfds:") else ()
    else:
        pair = tuple(_suffix(side) for side in train)
    return pair if len(set(pair)) == 2 and all(map(_is_language, pair)) else None


def _suffix(side):
    """The one suffix of all files of a side; "" where they differ. train.en.gz -> en"""
    paths = [side] if isinstance(side, str) else side
    found = {Path(re.sub(r"\.gz$", "", path, flags=re.IGNORECASE)).suffix.removeprefix(".") for path in paths}
    return found.pop() if len(found) == 1 else ""


def _is_language(name):
    return name.isascii() and name.isalpha() and name.islower() and len(name) in (2, 3) and name not in NO_LANGUAGE
