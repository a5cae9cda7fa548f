"""The folder of a model: what is written is loaded, and what cannot be used is refused."""

import dataclasses
import json

import numpy as np
import pytest

from keras_transformer import Transformer, model_folder
from keras_transformer.config import Config, DataConfig
from keras_transformer.files import FILLING
from keras_transformer.model_folder import SECTIONS, Contents, is_free, is_saved_translator
from keras_transformer.tokenizer import Tokenizer, Tokenizers

SIZES = dict(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture(scope="module")
def contents():
    tokenizer = Tokenizer.train(["Anna sleeps here. The dog sees a house."] * 9, vocab_size=40)
    model = Transformer(tokenizer.vocab_size, **SIZES)
    config = Config(model=model.config, data=DataConfig(train=None))
    return Contents(config, Tokenizers(tokenizer, tokenizer), model)


def written(folder, contents, **changes):
    config, tokenizers, model = contents._replace(**changes)
    model_folder.write(folder, {name: config.to_dict()[name] for name in SECTIONS}, tokenizers, model)
    return folder


def test_what_is_written_is_loaded(contents, tmp_path):
    config, tokenizers, model = model_folder.load(written(tmp_path, contents))
    assert config == contents.config and model.get_config() == contents.model.get_config()
    assert tokenizers.shared and tokenizers.source.model_hash == contents.tokenizers.source.model_hash
    for ours, theirs in zip(contents.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nothing_of_an_older_model_stays(contents, tmp_path):
    model_folder.write(tmp_path, contents.config.to_dict(), *contents[1:], metadata={"weights": "last"})
    assert (tmp_path / "model.json").exists()
    other = Tokenizer.train(["Anna sleeps."] * 9, vocab_size=20)
    written(tmp_path, contents, tokenizers=Tokenizers(other, contents.tokenizers.target))
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "source.model", "target.model", "model.keras"}


def test_a_folder_is_free_until_something_is_whole(contents, tmp_path):
    assert is_free(tmp_path) and is_free(tmp_path / "new")
    (tmp_path / FILLING).mkdir()
    (tmp_path / "config.json").write_text("{}")  # moved, and then the process was killed
    assert is_free(tmp_path)
    assert not is_free(written(tmp_path, contents))


def test_a_model_without_its_training_may_be_written_over(contents, tmp_path):
    assert not is_saved_translator(tmp_path)
    assert is_saved_translator(written(tmp_path, contents))
    trained_on = dataclasses.replace(contents.config.data, train=("a.en", "a.de"))
    assert not is_saved_translator(written(tmp_path, contents, config=contents.config.replace(data=trained_on)))
    model_folder.write(tmp_path, contents.config.to_dict(), *contents[1:])
    assert not is_saved_translator(tmp_path)  # it has the section of a training


@pytest.mark.parametrize("data", [{}, [], None, "train", {"train": "demo"}])
def test_what_only_looks_like_a_saved_translator_is_none(tmp_path, data):
    (tmp_path / "config.json").write_text(json.dumps({"data": data, "model": {}, "decode": {}}))
    assert not is_saved_translator(tmp_path)


def test_loading_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="model.keras"):
        model_folder.load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(FileNotFoundError, match="which is not finished: train on, or see `keras-transformer average`"):
        model_folder.load(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:500], lambda data: data[:500] + b"x" + data[501:]]
)
def test_a_damaged_model_is_an_error_that_names_it(contents, tmp_path, damage):
    path = written(tmp_path, contents) / "model.keras"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="model.keras, damaged: (?!File not found)"):
        model_folder.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("config.json", b"[]"), ("config.json", b"{"), ("config.json", b"\xff"), ("tokenizer.model", b"")],
)
def test_what_is_damaged_is_a_value_error(contents, tmp_path, name, content):
    (written(tmp_path, contents) / name).write_bytes(content)
    with pytest.raises(ValueError, match=name if name == "config.json" else "SentencePiece"):
        model_folder.load(tmp_path)


def test_tokenizers_of_another_model_are_neither_loaded_nor_written(contents, tmp_path):
    written(tmp_path / "saved", contents)
    letters = Tokenizer.train([*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"], vocab_size=60)
    letters.save(tmp_path / "saved" / "tokenizer.model")
    with pytest.raises(ValueError, match=r"saved: the tokenizers must have at most the model's \(40, 40\) pieces"):
        model_folder.load(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"the tokenizers must have at most the model's \(39, 39\) pieces"):
        written(tmp_path / "new", contents, model=Transformer(39, **SIZES))
    assert not (tmp_path / "new").exists()


def test_a_new_model_has_the_pieces_of_either_side(contents):
    small = Tokenizer.train(["Anna sleeps."] * 9, vocab_size=20)
    config = contents.config.replace(model=dict(tied_embeddings="none"))
    for pair in (small, contents.tokenizers.target), (contents.tokenizers.source, small):
        model = model_folder.new_model(config, Tokenizers(*pair))
        assert (model.source_vocab_size, model.vocab_size) == tuple(each.vocab_size for each in pair)


def test_one_tokenizer_of_another_model_is_enough_to_be_refused(contents, tmp_path):
    small = Tokenizer.train(["Anna sleeps."] * 9, vocab_size=20)
    large = Tokenizer.train([*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"], vocab_size=60)
    for pair in (small, large), (large, small):
        with pytest.raises(ValueError, match=r"at most the model's \(40, 40\) pieces"):
            written(tmp_path / "new", contents, tokenizers=Tokenizers(*pair))
