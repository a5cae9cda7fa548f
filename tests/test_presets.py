import keras
import pytest

from keras_transformer import PRESETS, Config, ConfigError, ModelConfig, Transformer, preset

# Table 3 of the paper; "-" is a blank cell: as base. The last column is millions of parameters, where it has them.
TABLE_3 = """
    row  N   d_model  d_ff  h   d_k  d_v  P_drop  eps_ls  steps   params
    base 6   512      2048  8   64   64   0.1     0.1     100000  65
    a1   -   -        -     1   512  512  -       -       -       -
    a2   -   -        -     4   128  128  -       -       -       -
    a3   -   -        -     16  32   32   -       -       -       -
    a4   -   -        -     32  16   16   -       -       -       -
    b1   -   -        -     -   16   -    -       -       -       58
    b2   -   -        -     -   32   -    -       -       -       60
    c1   2   -        -     -   -    -    -       -       -       36
    c2   4   -        -     -   -    -    -       -       -       50
    c3   8   -        -     -   -    -    -       -       -       80
    c4   -   256      -     -   32   32   -       -       -       28
    c5   -   1024     -     -   128  128  -       -       -       168
    c6   -   -        1024  -   -    -    -       -       -       53
    c7   -   -        4096  -   -    -    -       -       -       90
    d1   -   -        -     -   -    -    0.0     -       -       -
    d2   -   -        -     -   -    -    0.2     -       -       -
    d3   -   -        -     -   -    -    -       0.0     -       -
    d4   -   -        -     -   -    -    -       0.2     -       -
    e    -   -        -     -   -    -    -       -       -       -
    big  6   1024     4096  16  64   64   0.3     -       300000  213
"""
VOCAB_SIZE = 37_000


def read_table(text):
    """{row: {column: number}} with the blank cells filled in from base, {row: millions of parameters or None}."""
    names, *rows = (line.split() for line in text.strip().splitlines())
    cells = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}
    millions = {row: None if (count := line.pop("params")) == "-" else int(count) for row, line in cells.items()}
    filled = {
        row: {name: float(cells["base"][name] if cell == "-" else cell) for name, cell in line.items()}
        for row, line in cells.items()
    }
    return filled, millions


ROWS, MILLIONS = read_table(TABLE_3)
EVERY_ROW = pytest.mark.parametrize("row", ROWS)


def preset_of(row):
    return preset(row if row in ("base", "big") else f"table3_{row}")


def parameters(row, vocab_size):
    """The number of weights of a row of Table 3, from its columns and the equations of Section 3."""
    n, d, f, h, d_k, d_v = (int(ROWS[row][name]) for name in ("N", "d_model", "d_ff", "h", "d_k", "d_v"))
    attention = d * h * d_k + d * h * d_k + d * h * d_v + h * d_v * d  # W^Q, W^K, W^V, W^O; no biases
    feed_forward = d * f + f + f * d + d  # W_1, b_1, W_2, b_2
    norm = d + d  # gain and bias
    encoder_layer = attention + norm + feed_forward + norm
    decoder_layer = 2 * (attention + norm) + feed_forward + norm
    positions = 2 * 512 * d if row == "e" else 0  # learned, of source and target
    return vocab_size * d + positions + n * encoder_layer + n * decoder_layer  # one matrix for all three embeddings


@EVERY_ROW
def test_a_preset_is_its_row_of_table_3_and_otherwise_base(row):
    config, expected = preset_of(row), ROWS[row]
    model = config.model
    assert model.num_encoder_layers == model.num_decoder_layers == expected["N"]
    assert (model.d_model, model.d_ff, model.num_heads) == (expected["d_model"], expected["d_ff"], expected["h"])
    assert (model.key_width, model.value_width) == (expected["d_k"], expected["d_v"])
    assert (model.dropout, config.train.label_smoothing) == (expected["P_drop"], expected["eps_ls"])
    assert config.train.steps == expected["steps"]
    assert model.positions == ("learned" if row == "e" else "sinusoidal")
    columns = ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v", "dropout")
    base = {name: getattr(Config().model, name) for name in (*columns, "positions")}
    assert model.replace(**base) == Config().model  # nothing else differs


def test_every_row_of_table_3_is_a_preset():
    assert {name for name in PRESETS if name.startswith("table3_")} == {f"table3_{row}" for row in ROWS} - {
        "table3_base",
        "table3_big",
    }


@EVERY_ROW
def test_the_parameters_of_every_row_are_those_of_the_arithmetic(row):
    with keras.StatelessScope(initialize_variables=False):  # shapes without values: big has 214 million
        model = Transformer(VOCAB_SIZE, **preset_of(row).model.to_dict())
    assert model.count_params() == parameters(row, VOCAB_SIZE)


def test_base_has_63_045_632_parameters():
    assert Transformer.from_preset("base", vocab_size=37000).count_params() == 63_045_632


@pytest.mark.parametrize("row", ["b1", "b2", "c1", "c2", "c3", "c6", "c7"])
def test_the_rows_differ_from_base_by_as_many_parameters_as_the_paper_says(row):
    # Only differences: the paper's absolute numbers imply other vocabularies than the 37,000 of its text.
    ours = parameters(row, VOCAB_SIZE) - parameters("base", VOCAB_SIZE)
    assert ours / 1e6 == pytest.approx(MILLIONS[row] - MILLIONS["base"], abs=1.0)  # both sides of theirs are rounded


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "tiny",
            dict(num_encoder_layers=4, num_decoder_layers=4, d_model=128, d_ff=256, num_heads=4)
            | dict(dropout=0.3, norm="pre"),
        ),
        ("small", dict(num_encoder_layers=3, num_decoder_layers=3, d_model=256, d_ff=1024, num_heads=4)),
    ],
)
def test_the_small_presets_are_a_diff_from_base(name, values):
    assert preset(name).model == ModelConfig(**values)


def test_the_default_configuration_is_the_base_preset():
    assert preset("base") == Config()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bse", "Unknown preset `bse`. Did you mean `base`? Known: base, big, "),
        ("table3_b11", "Unknown preset `table3_b11`. Did you mean `table3_b1`?"),
        (3, "Unknown preset `3`. Known: base, "),
        (["base"], "Unknown preset `['base']`."),
    ],
)
def test_an_unknown_preset_fails_with_the_nearest_known_one(name, message):
    with pytest.raises(ConfigError) as failure:
        preset(name)
    assert message in str(failure.value)


def test_a_model_from_a_preset_takes_changes():
    model = Transformer.from_preset("tiny", vocab_size=31, num_decoder_layers=1, d_ff=29, name="mine")
    assert model.config == preset("tiny").model.replace(num_decoder_layers=1, d_ff=29)
    assert (model.vocab_size, model.name) == (31, "mine")
