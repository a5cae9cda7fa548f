"""The finished run, or the saved translator, with whose weights a run begins: `train.start_from`."""

from pathlib import Path

from keras_transformer import model_folder
from keras_transformer.config import Config, ConfigError, differences


def load_origin(folder, config: Config) -> model_folder.Contents:
    """What `folder` holds. Refuses a model whose shapes are not those of `config`, or that reads text differently."""
    origin = model_folder.load(Path(folder))
    sizes = origin.model.source_vocab_size, origin.model.vocab_size
    if sizes != (found := tuple(tokenizer.vocab_size for tokenizer in origin.tokenizers)):
        raise ConfigError(
            f"`train.start_from` needs a model of as many pieces as its tokenizers have, {found}. "
            f"Received: {sizes} in {folder}."
        )
    found = differences(origin.model.config.to_dict(), config.model.to_dict())
    different = [f"model.{key}: {old!r} -> {new!r}" for key, (old, new) in found.items() if "dropout" not in key]
    data = origin.config.data
    if data.shared_vocab != config.data.shared_vocab:
        different.append(f"data.shared_vocab: {data.shared_vocab} -> {config.data.shared_vocab}")
    if data.lowercase != config.data.lowercase:
        different.append(f"data.lowercase: {data.lowercase} -> {config.data.lowercase}")
    if strangers := [symbol for symbol in config.data.symbols if not _are_one_piece(symbol, origin.tokenizers)]:
        different.append(f"data.symbols: its tokenizers do not have {', '.join(strangers)}")
    if not data.shared_vocab and data.reverse != config.data.reverse:
        different.append(f"data.reverse: {data.reverse} -> {config.data.reverse}")
    if different:
        raise ConfigError(
            f"`train.start_from` needs a model like that of {folder}: give its recipe again, or --set options of "
            f"{folder}/config.json. Received: {', '.join(different)}."
        )
    return origin


def _are_one_piece(symbol, tokenizers):
    return all(symbol in tokenizer.pieces(*tokenizer.encode([symbol])) for tokenizer in tokenizers)
