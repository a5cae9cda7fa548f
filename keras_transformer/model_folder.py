"""The folder of a model, which `Translator.load`, the commands and the export take: that of a run holds more.

config.json       the configuration; of a model that was saved or packed its sections data, model and decode
tokenizer.model   SentencePiece (source.model and target.model where the vocabularies are separate)
model.json        which weights these are, where something is known of them
model.keras       the model
"""

import contextlib
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import keras

from keras_transformer.config import Config
from keras_transformer.files import filling, may_be_filled, read_json, save_model, write_json
from keras_transformer.model import Transformer
from keras_transformer.tokenizer import TOKENIZER_FILES, Tokenizers

SECTIONS = ("data", "model", "decode")  # of the configuration of a model without a training
FILES = ("config.json", *TOKENIZER_FILES, "model.json", "model.keras")  # the last comes last, see `filling`


class Contents(NamedTuple):
    config: Config
    tokenizers: Tokenizers
    model: Transformer


def new_model(config: Config, tokenizers: Tokenizers, dtype: str = "float32") -> Transformer:
    """A new model as `config` describes it. Only in training does it get `train.precision` as its `dtype`: in bfloat16
    a translation would depend on the batch that it is made in."""
    return Transformer(
        tokenizers.target.vocab_size,
        source_vocab_size=tokenizers.source.vocab_size,
        name="transformer",
        dtype=dtype,
        **config.model.to_dict(),
    )


def load(folder: Path) -> Contents:
    """What a folder holds; refuses what is damaged or does not belong together."""
    model_path, config_path = folder / "model.keras", folder / "config.json"
    if not model_path.exists():
        if folder.is_file():
            raise NotADirectoryError(f"Expected the folder of a finished run or a saved translator. Received: {folder}")
        is_run = (folder / "checkpoints").is_dir()
        raise FileNotFoundError(
            f"A finished run, or a saved translator, holds a model.keras. There is none in {folder}"
            + (", which is not finished: train on, or see `keras-transformer average`." if is_run else ".")
        )
    _, config = read_config(config_path)
    with _damage(model_path):
        zipfile.ZipFile(model_path).close()  # of what is no archive Keras says that there is no such file
        model = keras.saving.load_model(model_path, compile=False)
    tokenizers = Tokenizers.load(folder)
    check_sizes(tokenizers, model, f"{folder}: ")
    return Contents(config, tokenizers, model)


def write(
    folder: Path,
    config: Mapping,
    tokenizers: Tokenizers,
    model: Transformer,
    metadata: Mapping | None = None,
    save: Callable[[Transformer, Path], None] = save_model,
):
    """Writes a model as a whole, over one that is there: an error changes nothing, a kill leaves no mixture of both.

    Args:
        folder: where to; see `is_free` and `is_saved_translator`.
        config: what config.json will hold.
        tokenizers: of the model.
        model: the model.
        metadata: what model.json will hold, if anything.
        save: writes a model to a path.
    """
    check_sizes(tokenizers, model)
    with filling(folder, FILES) as aside:
        write_json(aside / "config.json", config)
        tokenizers.save(aside)
        if metadata is not None:
            write_json(aside / "model.json", metadata)
        save(model, aside / "model.keras")


def read_config(path: Path) -> tuple[dict, Config]:
    """config.json as it is, and as a `Config`, which has defaults for what it leaves out."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return values, Config.from_dict(values)
    except (ValueError, TypeError) as error:  # no UTF-8, no JSON, no object, no configuration
        raise ValueError(f"{path} is not a configuration of this version: {error}") from error


def is_free(folder: Path) -> bool:
    """Whether a folder is new, empty, or holds nothing but what a killed `write` has left."""
    return may_be_filled(folder, FILES)


def is_saved_translator(folder: Path) -> bool:
    """Whether a folder holds what `Translator.save` has written, which may be written over: no training is lost."""
    config = read_json(folder / "config.json")
    data = config.get("data")
    return config.keys() == set(SECTIONS) and isinstance(data, dict) and "train" in data and data["train"] is None


def bare(model: Transformer) -> Transformer:
    """A copy of a model in float32, without the optimizer that `fit` has left in it."""
    config, is_half = model.get_config(), model.compute_dtype in ("float16", "bfloat16")
    if is_half:  # then a translation would depend on its batch
        config["dtype"] = "float32"
    copy = type(model).from_config(config)
    if [w.shape for w in copy.weights] != [w.shape for w in model.weights]:
        # It has more than its configuration tells, LoRA for example, which Keras merges where it saves.
        if not is_half:
            return model
        model = _saved_and_loaded(model)
    copy.set_weights(model.get_weights())
    return copy


def _saved_and_loaded(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save(path := Path(folder, "model.keras"))
        return keras.saving.load_model(path, compile=False)


def check_sizes(tokenizers: Tokenizers, model, where: str = ""):
    """Refuses tokenizers with pieces that the model does not know. Few lines give fewer pieces than were wanted."""
    found, limits = tuple(each.vocab_size for each in tokenizers), (model.source_vocab_size, model.vocab_size)
    if any(size > limit for size, limit in zip(found, limits, strict=True)):
        raise ValueError(f"{where}the tokenizers must have at most the model's {limits} pieces. Received: {found}.")


@contextlib.contextmanager
def _damage(path):
    """Reports what goes wrong inside as damage of the file, after checking that the file can be opened."""
    path.open("rb").close()
    try:
        yield
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"Expected the files of a finished run. Received: {path}, damaged: {reason}") from error
