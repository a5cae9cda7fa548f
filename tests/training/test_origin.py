import pytest

from keras_transformer import Transformer, Translator, model_folder
from keras_transformer.config import ConfigError
from keras_transformer.training.origin import load_origin
from keras_transformer.training.workdir import Workdir


def test_a_run_begins_with_no_model_of_another_shape(finished_run, tmp_path):
    config = Workdir(finished_run).load_config().replace(train=dict(start_from=str(finished_run)))
    other = config.replace(model=dict(d_ff=48, dropout=0.0, tied_embeddings="target"), data=dict(shared_vocab=False))
    with pytest.raises(
        ConfigError, match="config.json. Received: model.d_ff: 32 -> 48, model.tied.* data.shared_vocab: True -> False"
    ):
        load_origin(finished_run, other)
    folded = config.replace(data=dict(lowercase=True))
    with pytest.raises(ConfigError, match="data.lowercase: False -> True"):
        load_origin(finished_run, folded)
    tagged = config.replace(data=dict(symbols=["<2de>", "<2en>"]))
    with pytest.raises(ConfigError, match="data.symbols: its tokenizers do not have <2de>, <2en>"):
        load_origin(finished_run, tagged)
    with pytest.raises(FileNotFoundError, match="There is none in nowhere"):
        load_origin("nowhere", config)


def test_a_run_begins_with_no_model_of_more_pieces_than_its_tokenizers(finished_run, tmp_path):
    config, tokenizers, model = model_folder.load(finished_run)
    larger = Transformer(model.vocab_size + 7, **model.config.to_dict())
    Translator(larger, tokenizers).save(tmp_path)
    with pytest.raises(ConfigError, match=f"as many pieces as its tokenizers have, .{model.vocab_size}, "):
        load_origin(tmp_path, config)


def test_equal_tokenizers_may_be_those_of_two_vocabularies(finished_run, tmp_path):
    config, tokenizers, _ = model_folder.load(finished_run)
    two = config.replace(model=dict(tied_embeddings="target"), data=dict(shared_vocab=False))
    model_folder.write(tmp_path, two.to_dict(), tokenizers, model_folder.new_model(two, tokenizers))
    assert load_origin(tmp_path, two).config == two
