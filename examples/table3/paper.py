"""Table 3 of the paper, and the rule that scales it down.

Every width is divided by one factor, and so is the vocabulary; layers, heads, dropout and label smoothing stay:

                d_model   d_ff    d_k   d_v   vocabulary     N   h   P_drop   eps_ls
    the paper   512       2,048   64    64    37,000         6   8   0.1      0.1
    factor 4    128       512     16    16    9,250          6   8   0.1      0.1

So every matrix has 1 / factor^2 of its weights, in every row. The peak of the learning rate is that of Section 5.3 for
the row's own d_model and 4,000 warm-up steps, however few of them there are. What cannot be scaled like this is said in
`NOT_SCALED`.
"""

from typing import NamedTuple

from keras_transformer.config import Config
from keras_transformer.presets import preset

# English to German, newstest2013. "-" is a blank cell: as base; the parameters are millions.
TABLE = """
    row   N  d_model  d_ff  h   d_k  d_v  P_drop  eps_ls  steps  PPL   BLEU  params
    base  6  512      2048  8   64   64   0.1     0.1     100K   4.92  25.8  65
    A1    -  -        -     1   512  512  -       -       -      5.29  24.9  -
    A2    -  -        -     4   128  128  -       -       -      5.00  25.5  -
    A3    -  -        -     16  32   32   -       -       -      4.91  25.8  -
    A4    -  -        -     32  16   16   -       -       -      5.01  25.4  -
    B1    -  -        -     -   16   -    -       -       -      5.16  25.1  58
    B2    -  -        -     -   32   -    -       -       -      5.01  25.4  60
    C1    2  -        -     -   -    -    -       -       -      6.11  23.7  36
    C2    4  -        -     -   -    -    -       -       -      5.19  25.3  50
    C3    8  -        -     -   -    -    -       -       -      4.88  25.5  80
    C4    -  256      -     -   32   32   -       -       -      5.75  24.5  28
    C5    -  1024     -     -   128  128  -       -       -      4.66  26.0  168
    C6    -  -        1024  -   -    -    -       -       -      5.12  25.4  53
    C7    -  -        4096  -   -    -    -       -       -      4.75  26.2  90
    D1    -  -        -     -   -    -    0.0     -       -      5.77  24.6  -
    D2    -  -        -     -   -    -    0.2     -       -      4.95  25.5  -
    D3    -  -        -     -   -    -    -       0.0     -      4.67  25.3  -
    D4    -  -        -     -   -    -    -       0.2     -      5.47  25.7  -
    E     -  -        -     -   -    -    -       -       -      4.92  25.7  -
    big   6  1024     4096  16  -    -    0.3     -       300K   4.33  26.4  213
"""

GROUPS = {  # what is varied, and what the paper concludes in Sections 6.2 and 5.4
    "A": ("number of heads", "one head is 0.9 BLEU worse than the best setting, too many heads are worse as well"),
    "B": ("width of the keys", "narrower keys are worse"),
    "C": ("size", "bigger models are better"),
    "D": ("dropout, label smoothing", "dropout helps; label smoothing hurts perplexity and helps BLEU"),
    "E": ("learned positions", "nearly the same as sinusoids"),
    "big": ("everything together", "the best row of the table"),
}

NOT_SCALED = """\
- `big` makes as many steps as the other rows; in the paper it makes three times as many.
- Dropout and label smoothing are the paper's, though there are far fewer sentences and steps.
- The warm-up is a fifth of the steps; the paper's 4 % would be too few of a short run.
- Perplexity is that of our pieces on other text: only differences can be compared with the paper's."""

WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
VOCAB_SIZE = 37_000  # Section 5.1
WARMUP_STEPS = 4000  # Section 5.3: the peak of the learning rate is (d_model * 4000) ^ -0.5
FACTORS = (1, 2, 4, 8, 16)  # that leave every width of the table whole


class Row(NamedTuple):
    """One row as the paper prints it."""

    name: str
    cells: dict[str, str]  # column -> what is printed, "" for a blank cell
    perplexity: float
    bleu: float
    millions: int | None  # of parameters

    @property
    def group(self) -> str:
        return self.name if self.name == "big" else self.name[0]

    @property
    def key(self) -> str:
        """The name of its preset."""
        return self.name if self.name in ("base", "big") else f"table3_{self.name.lower()}"


def read_table(text: str) -> dict[str, Row]:
    columns, *lines = ([cell.replace("-", "") for cell in line.split()] for line in text.strip().splitlines())
    rows = {}
    for name, *cells in lines:
        printed = dict(zip(columns[1:], cells, strict=True))
        perplexity, bleu, millions = (printed.pop(column) for column in ("PPL", "BLEU", "params"))
        rows[name] = Row(name, printed, float(perplexity), float(bleu), int(millions) if millions else None)
    return rows


ROWS = read_table(TABLE)


def scaled(row: Row, factor: int, steps: int) -> Config:
    """The configuration of a row with every width divided by `factor`; without data."""
    if factor not in FACTORS:
        raise ValueError(f"The factor must be one of {', '.join(map(str, FACTORS))}. Received: {factor}.")
    config = preset(row.key)
    model = config.model
    widths = dict(zip(WIDTHS, (model.d_model, model.d_ff, model.key_width, model.value_width), strict=True))
    warmup_steps = max(1, steps // 5)
    return config.replace(
        model={name: width // factor for name, width in widths.items()},
        data=dict(vocab_size=VOCAB_SIZE // factor),
        train=dict(
            steps=steps,
            warmup_steps=warmup_steps,
            learning_rate_scale=(warmup_steps / WARMUP_STEPS) ** 0.5,  # the peak that 4,000 warm-up steps would have
        ),
    )


def cost(config: Config) -> int:
    """Multiplications for one position on either side: what the time of a step goes with, roughly."""
    m = config.model
    attention = 2 * m.d_model * m.num_heads * (m.key_width + m.value_width)
    feed_forward = 2 * m.d_model * m.d_ff
    encoder = m.num_encoder_layers * (attention + feed_forward)
    decoder = m.num_decoder_layers * (2 * attention + feed_forward)
    return encoder + decoder + config.data.vocab_size * m.d_model
