from pathlib import Path

import pytest

from keras_transformer.config import ConfigError
from keras_transformer.presets import preset
from keras_transformer.recipes import load_recipe, parse_overrides, parse_value


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def error_of(*arguments, **options):
    with pytest.raises(ConfigError) as failure:
        load_recipe(*arguments, **options)
    return str(failure.value)


def test_without_a_recipe_it_is_the_base_preset():
    assert load_recipe() == preset("base")


def test_a_recipe_is_what_differs_from_a_preset(write):
    path = write('preset = "tiny"\n[model]\ndropout = 0.2\n[train]\nsteps = 7\n')
    assert load_recipe(path) == preset("tiny").replace(model=dict(dropout=0.2), train=dict(steps=7))


def test_a_byte_order_mark_is_no_part_of_a_recipe(write):
    assert load_recipe(write("\ufeff[train]\nsteps = 7")).train.steps == 7


def test_a_recipe_without_a_preset_differs_from_base(write):
    assert load_recipe(write("[model]\ndropout = 0.2\n")) == preset("base").replace(model=dict(dropout=0.2))


def test_a_preset_precedes_the_defaults_a_recipe_precedes_the_preset_and_set_precedes_the_recipe(write):
    path = write('preset = "tiny"\n[model]\nd_ff = 512\ndropout = 0.2\n')
    config = load_recipe(path, ["model.dropout=0.05"]).model
    assert (config.norm, config.num_heads, config.d_ff, config.dropout) == ("pre", 4, 512, 0.05)


def test_a_later_set_precedes_an_earlier_one():
    assert load_recipe(overrides=["train.steps=3", "train.steps=5"]).train.steps == 5


def test_set_may_choose_another_preset_than_the_recipe(write):
    path = write('preset = "tiny"\n[train]\nsteps = 7\n')
    assert load_recipe(path, ["preset=small"]) == preset("small").replace(train=dict(steps=7))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"text.tsv"', "{folder}/text.tsv"),
        ('["a.en", "b/c.de"]', ("{folder}/a.en", "{folder}/b/c.de")),
        (
            '[["a.en", "b.en"], ["a.de", "b.de"]]',
            (("{folder}/a.en", "{folder}/b.en"), ("{folder}/a.de", "{folder}/b.de")),
        ),
        ('"/data/text.tsv"', "/data/text.tsv"),
        ('["~/a.en", "b.de"]', ("/home/anna/a.en", "{folder}/b.de")),
        ('"demo"', "demo"),
        ('"tfds:wmt14_translate/de-en"', "tfds:wmt14_translate/de-en"),
    ],
)
def test_paths_are_relative_to_the_recipe_wherever_the_command_runs(write, monkeypatch, tmp_path, value, expected):
    def fill(corpus):
        return corpus.format(folder=tmp_path) if isinstance(corpus, str) else tuple(map(fill, corpus))

    path = write(f"[data]\ntrain = {value}\n")
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("HOME", "/home/anna")
    assert load_recipe(path).data.train == fill(expected)
    assert load_recipe(Path(path.name)).data.train == fill(expected)


def test_paths_of_every_split_are_located(write, tmp_path):
    data = load_recipe(write('[data]\ntrain = "a.tsv"\nvalid = "b.tsv"\ntest = "c.tsv"\n')).data
    assert (data.train, data.valid, data.test) == tuple(f"{tmp_path}/{name}.tsv" for name in "abc")


def test_the_models_of_tokenizers_are_located_too(write, tmp_path):
    path = write(
        '[data]\ntokenizer_model = ["a.model", "b.model"]\nshared_vocab = false\n[model]\ntied_embeddings = "none"\n'
    )
    data = load_recipe(path).data
    assert data.tokenizer_files == (f"{tmp_path}/a.model", f"{tmp_path}/b.model")


def test_the_run_to_begin_with_is_located_too(write, tmp_path):
    recipe = write('[train]\nstart_from = "runs/a"\n')
    assert load_recipe(recipe).train.start_from == f"{tmp_path}/runs/a"
    assert load_recipe(recipe, ["train.start_from=b"]).train.start_from == str(Path.cwd() / "b")
    assert load_recipe(recipe, ["train.start_from=none"]).train.start_from is None
    with pytest.raises(ConfigError, match="start_from.*the folder of a run"):
        load_recipe(recipe, ["train.start_from="])
    assert load_recipe(recipe, ["train.start_from=demo"]).train.start_from == str(Path.cwd() / "demo")


def test_a_recipe_says_none_as_a_set_does(write):
    text = '[data]\nvalid = "none"\n[model]\ntied_embeddings = "none"\n[train]\ncheckpoint_minutes = "None"\n'
    config = load_recipe(write(text + 'start_from = "none"\n'))
    assert (config.data.valid, config.train.checkpoint_minutes, config.train.start_from) == (None, None, None)
    assert config.model.tied_embeddings == "none"


def test_a_number_beyond_all_floats_is_refused():
    assert "clip_norm" in error_of(overrides=["train.clip_norm=1" + 400 * "0"])


def test_a_path_given_with_set_is_relative_to_where_the_command_runs(write):
    recipe = write('[data]\ntrain = "a.tsv"\n')
    assert load_recipe(recipe, ["data.train=b.tsv"]).data.train == str(Path.cwd() / "b.tsv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model\n", "The recipe must be valid TOML. Received: {path}: "),
        ("[model]\nd_modle = 8\n", "Unknown key `d_modle` in ModelConfig. Did you mean `d_model`?"),
        ("[modle]\nd_model = 8\n", "Unknown key `modle` in Config. Did you mean `model`?"),
        ("d_model = 8\n", "Unknown key `d_model` in Config."),
        (
            'presett = "x"\n',
            "Unknown key `presett` in Config. Did you mean `preset`? Known: data, decode, model, preset, train.",
        ),
        ("model = 8\n", "`model` must be a table. Received: model=8 (int)."),
        ("data = 8\n", "`data` must be a table. Received: data=8 (int)."),
        ('[model]\nd_model = "512"\n', "`d_model` must be an integer. Received: d_model='512' (str)."),
        ('preset = "tinny"\n', "Unknown preset `tinny`. Did you mean `tiny`?"),
        ("preset = 5\n", "Unknown preset `5`."),
        ("[data]\ntrain = 5\n", "`train` must be a string or a list of "),
        ('[data]\ntrain = ""\n', "`train` must be text: two files, a .tsv file, tfds:... or demo. Received: train=''."),
    ],
)
def test_a_wrong_recipe_fails_with_what_was_expected_and_what_came(write, text, message):
    path = write(text)
    assert message.format(path=path) in error_of(path)


def test_a_list_whose_quotes_a_shell_has_eaten_is_refused():
    message = error_of(overrides=["data.train=[a.en,b.de]"])
    assert message == """A list must be written in TOML, '["a.en","a.de"]'. Received: '[a.en,b.de]'."""


def test_a_recipe_that_is_not_text_names_its_file(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert f"The recipe must be valid TOML. Received: {path}: " in error_of(path)


def test_a_recipe_that_is_not_there_names_its_file(tmp_path):
    path = tmp_path / "nothing.toml"
    assert error_of(path) == f"The recipe must be a readable TOML file. Received: {path} (No such file or directory)."


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100", 100),
        ("1e-3", 1e-3),
        ("true", True),
        ('"8"', "8"),
        ("pre", "pre"),
        (" pre ", "pre"),
        ("none", None),
        ("None", None),
        ('["a.en", "a.de"]', ["a.en", "a.de"]),
        ("tfds:wmt14_translate/de-en", "tfds:wmt14_translate/de-en"),
        ("C:\\text.tsv", "C:\\text.tsv"),
        ("", ""),
    ],
)
def test_the_value_of_a_set_is_toml_or_none_or_plain_text(text, value):
    parsed = parse_value(text)
    assert parsed == value and type(parsed) is type(value)


def test_none_is_a_name_where_the_field_has_it():
    config = load_recipe(None, ["model.tied_embeddings=none", "data.bleu_tokenizer=none", "data.max_pairs=none"])
    assert (config.model.tied_embeddings, config.data.bleu_tokenizer, config.data.max_pairs) == ("none", "none", None)
    assert "one of 'post', 'pre'" in error_of(overrides=["model.norm=none"])


def test_sets_of_one_section_come_together():
    overrides = ["train.steps=3", "model.norm=pre", "train.clip_norm=none", "preset='tiny'"]
    expected = {"train": {"steps": 3, "clip_norm": None}, "model": {"norm": "pre"}, "preset": "tiny"}
    assert parse_overrides(overrides) == expected


def test_a_value_may_contain_an_equals_sign():
    assert parse_overrides(["data.train=a=b.tsv"]) == {"data": {"train": "a=b.tsv"}}


@pytest.mark.parametrize("override", ["train.steps", "steps=3", "train.=3", ".steps=3", "=3", "", "preset.x=1"])
def test_a_set_of_another_form_fails_with_the_form_that_was_expected(override):
    assert error_of(overrides=[override]) == (
        f"--set takes section.field=value, or preset=NAME. Received: {override!r}."
    )


def test_a_single_set_is_no_list_of_them():
    assert error_of(overrides="train.steps=3") == "Expected a list of section.field=value. Received: 'train.steps=3'."


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trian.steps=3", "Unknown key `trian` in Config. Did you mean `train`?"),
        ("train.stesp=3", "Unknown key `stesp` in TrainConfig. Did you mean `steps`?"),
        ("train.steps=3.5", "`steps` must be an integer. Received: steps=3.5 (float)."),
        ("train.steps=three", "`steps` must be an integer. Received: steps='three' (str)."),
    ],
)
def test_a_wrong_set_fails_with_what_was_expected_and_what_came(override, message):
    assert message in error_of(overrides=[override])
