import dataclasses
import json

import numpy as np
import pytest

from keras_transformer.config import (
    Config,
    ConfigError,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    did_you_mean,
    differences,
)

SECTIONS = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig, "decode": DecodeConfig}


def error_of(section, **values):
    with pytest.raises(ConfigError) as failure:
        section.from_dict(values)
    return str(failure.value)


# --- types


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (ModelConfig, dict(d_ff="8"), "`d_ff` must be an integer. Received: d_ff='8' (str)."),
        (ModelConfig, dict(num_encoder_layers=True), "`num_encoder_layers` must be an integer. Received: "),
        (ModelConfig, dict(d_model=64.0), "`d_model` must be an integer. Received: d_model=64.0 (float)."),
        (ModelConfig, dict(d_ff=None), "`d_ff` must be an integer. Received: d_ff=None (NoneType)."),
        (ModelConfig, dict(d_k="64"), "`d_k` must be an integer or none. Received: d_k='64' (str)."),
        (ModelConfig, dict(dropout="0.1"), "`dropout` must be a number. Received: dropout='0.1' (str)."),
        (ModelConfig, dict(dropout=True), "`dropout` must be a number. Received: dropout=True (bool)."),
        (ModelConfig, dict(norm="middle"), "`norm` must be one of 'post', 'pre'. Received: norm='middle' (str)."),
        (DataConfig, dict(reverse=1), "`reverse` must be true or false. Received: reverse=1 (int)."),
        (DataConfig, dict(train=7), "`train` must be a string or a list of "),
        (DataConfig, dict(train=[1, 2]), "`train` must be a string or a list of "),
        (TrainConfig, dict(clip_norm="1"), "`clip_norm` must be a number or none. Received: clip_norm='1' (str)."),
        (Config, dict(model=5), "`model` must be a table. Received: model=5 (int)."),
    ],
)
def test_a_wrong_type_fails_with_what_was_expected_and_what_came(section, values, message):
    assert message in error_of(section, **values)


def test_an_integer_is_a_number_and_becomes_a_float():
    config = DecodeConfig(alpha=1)
    assert type(config.alpha) is float and config == DecodeConfig(alpha=1.0)


def test_lists_of_files_become_tuples_at_every_depth():
    config = DataConfig(train=[["a.en", "b.en"], ["a.de", "b.de"]])
    assert config.train == (("a.en", "b.en"), ("a.de", "b.de"))
    assert config == DataConfig(train=(("a.en", "b.en"), ("a.de", "b.de"))) and hash(config)


# --- values


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (ModelConfig, dict(num_encoder_layers=-1), "at least 1. Received: num_encoder_layers=-1."),
        (ModelConfig, dict(num_decoder_layers=0), "at least 1. Received: num_decoder_layers=0."),
        (ModelConfig, dict(num_heads=0), "at least 1. Received: num_heads=0."),
        (ModelConfig, dict(d_k=0), "at least 1. Received: d_k=0."),
        (ModelConfig, dict(neighbourhood=-3), "at least 1. Received: neighbourhood=-3."),
        (ModelConfig, dict(dropout=1.5), "at least 0 and less than 1. Received: dropout=1.5."),
        (ModelConfig, dict(dropout=1), "at least 0 and less than 1. Received: dropout=1.0."),
        (ModelConfig, dict(attention_dropout=-0.1), "at least 0 and less than 1. Received: attention_dropout=-0.1."),
        (ModelConfig, dict(dropout=float("nan")), "at least 0 and less than 1. Received: dropout=nan."),
        (ModelConfig, dict(norm_epsilon=0.0), "positive and finite. Received: norm_epsilon=0.0."),
        (ModelConfig, dict(d_model=500), "divisible by `num_heads` unless both `d_k` and `d_v` are given. "),
        (ModelConfig, dict(d_model=500), "Received: d_model=500, num_heads=8."),
        (ModelConfig, dict(d_model=500, d_k=64), "divisible by `num_heads`"),
        (ModelConfig, dict(d_model=25, num_heads=5), "even for sinusoidal positions. Received: d_model=25."),
        (DataConfig, dict(vocab_size=7), "at least 8. Received: vocab_size=7."),
        (DataConfig, dict(max_length=2**31), "at most 2147483647. Received: max_length=2147483648."),
        (DataConfig, dict(train=["only.en"]), "a pair: [source file(s), target file(s)]"),
        (DataConfig, dict(symbols=["a b"]), """none of them a special piece or a byte. Received: symbols=('a b',)."""),
        (DataConfig, dict(symbols=["a", "a"]), "must be different strings"),
        (DataConfig, dict(tokenizer_model=["a", "b"]), "one file with data.shared_vocab, [source, target] without it"),
        (DataConfig, dict(tokenizer_model="a", shared_vocab=False), "one file with data.shared_vocab"),
        (DataConfig, dict(tokenizer_model="a", symbols=["b"]), "in the model already where data.tokenizer_model"),
        (Config, dict(data=DataConfig(tokenizer_model="a"), train=TrainConfig(start_from="b")), "which has tokenizers"),
        (DataConfig, dict(subword_sampling=1.1), "at least 0 and at most 1. Received: subword_sampling=1.1."),
        (TrainConfig, dict(steps=0), "at least 1. Received: steps=0."),
        (TrainConfig, dict(label_smoothing=1.0), "at least 0 and less than 1. Received: label_smoothing=1.0."),
        (TrainConfig, dict(clip_norm=0.0), "positive and finite. Received: clip_norm=0.0."),
        (TrainConfig, dict(ema_decay=1.0), "between 0 and 1. Received: ema_decay=1.0."),
        (TrainConfig, dict(average_checkpoints=7), "at most `keep_checkpoints`. Received: average_checkpoints=7."),
        (DecodeConfig, dict(beam_width=0), "at least 1. Received: beam_width=0."),
        (DecodeConfig, dict(max_input_length=1), "at least 2. Received: max_input_length=1."),
        (DecodeConfig, dict(min_length=2**30), "at most 1048576. Received: min_length=1073741824."),
        (DecodeConfig, dict(extra_length=2**21), "at most 1048576. Received: extra_length=2097152."),
        (DecodeConfig, dict(beam_width=201), "at most 200. Received: beam_width=201."),
        (DecodeConfig, dict(alpha=-0.1), "from 0 to 6. Received: alpha=-0.1."),
        (DecodeConfig, dict(alpha=6.1), "from 0 to 6. Received: alpha=6.1."),
    ],
)
def test_an_impossible_value_fails_with_what_was_expected_and_what_came(section, values, message):
    assert message in error_of(section, **values)


@pytest.mark.parametrize(
    "values",
    [
        dict(d_model=500, d_k=64, d_v=64),
        dict(d_model=np.int64(6), num_heads=1, dropout=np.float32(0.5)),
        dict(d_model=25, num_heads=5, positions="learned"),
        dict(neighbourhood=1),
    ],
)
def test_a_value_that_only_looks_impossible_is_allowed(values):
    config = ModelConfig.from_dict(values)
    assert json.loads(json.dumps(config.to_dict())) == config.to_dict()


# --- keys


@pytest.mark.parametrize(
    ("section", "key", "nearest"),
    [
        (ModelConfig, "d_modle", "d_model"),
        (TrainConfig, "warmup", "warmup_steps"),
        (Config, "modle", "model"),
        (DecodeConfig, "beamwidth", "beam_width"),
    ],
)
def test_an_unknown_key_fails_with_the_nearest_known_one(section, key, nearest):
    message = error_of(section, **{key: 1})
    assert message.startswith(f"Unknown key `{key}` in {section.__name__}. Did you mean `{nearest}`? Known: ")


def test_an_unknown_key_inside_a_section_is_found():
    message = error_of(Config, model=dict(d_modle=8))
    assert message.startswith("[model] Unknown key `d_modle` in ModelConfig. Did you mean `d_model`?")


def test_an_error_of_a_section_says_which():
    assert error_of(Config, decode=dict(tokens_per_batch=0)).startswith(
        "[decode] `tokens_per_batch` must be at least 1"
    )
    assert error_of(Config, train=5) == "`train` must be a table. Received: train=5 (int)."


def test_a_name_like_no_other_is_answered_with_all_that_are_known():
    assert did_you_mean("xyzzy", ["beta", "alpha"]) == " Known: alpha, beta."


# --- the objects


@pytest.mark.parametrize("section", [*SECTIONS.values(), Config])
def test_a_configuration_is_frozen_and_takes_keywords_alone(section):
    config = section()
    name = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, name, getattr(config, name))
    with pytest.raises(TypeError):
        section(getattr(config, name))


def test_a_replaced_section_keeps_the_values_that_are_not_named():
    config = Config(model=ModelConfig(d_ff=64, dropout=0.3)).replace(model=dict(dropout=0.2), train=dict(steps=7))
    assert config.model == ModelConfig(d_ff=64, dropout=0.2)
    assert config.train == TrainConfig(steps=7) and config.data == DataConfig()


def test_a_replacement_is_checked_too_and_leaves_the_original_alone():
    config = Config()
    with pytest.raises(ConfigError):
        config.replace(model=dict(dropout=2.0))
    assert config == Config()


def test_a_configuration_survives_json():
    config = Config().replace(
        model=dict(norm="pre", d_k=5, d_v=17, neighbourhood=3),
        data=dict(train=[["a.en", "b.en"], "c.de"], max_length_ratio=2),
        train=dict(clip_norm=1, checkpoint_minutes=None),
        decode=dict(alpha=1),
    )
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_width_of_a_head_is_its_share_of_d_model_unless_it_is_given():
    assert (ModelConfig().key_width, ModelConfig().value_width) == (64, 64)
    assert (ModelConfig(d_k=16).key_width, ModelConfig(d_k=16).value_width) == (16, 64)
    assert (ModelConfig(d_v=17).key_width, ModelConfig(d_v=17).value_width) == (64, 17)


def test_differences_are_found_at_any_depth():
    assert differences({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}}) == {"a.c": (2, 4), "d": (3, None)}
