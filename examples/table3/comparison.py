"""Table 3 beside our own: the table, and what agrees.

A result is what `run.py` keeps of a row:

    {"row": "A1", "perplexity": 12.3, "parameters": 4130048,
     "bleu": {"value": 20.1, "interval": [18.9, 21.2], "signature": "..."},
     "difference": {"value": -0.8, "interval": [-1.3, -0.2]}}       # to base, paired bootstrap; None for base itself
"""

import math

from paper import GROUPS, NOT_SCALED, ROWS, WIDTHS, scaled

NO_DIFFERENCE = 0.1  # BLEU: the paper rounds to one digit, and calls 0.1 nearly identical
VERDICTS = ("agrees", "undecided", "disagrees", "not learned")


def verdict(theirs: float, interval) -> str:
    """Whether a difference to base has the paper's sign, as far as the 95 % interval of ours can tell."""
    low, high = interval
    is_nothing = low <= 0 <= high
    if abs(theirs) <= NO_DIFFERENCE:
        return "agrees" if is_nothing else "disagrees"
    if is_nothing:
        return "undecided"
    return "agrees" if (low > 0) == (theirs > 0) else "disagrees"


def difference_of(row) -> float:
    """The paper's difference to base in BLEU."""
    return round(row.bleu - ROWS["base"].bleu, 1)


def perplexity_of(result) -> float:
    """Of a row whose loss was no number there is none."""
    return math.inf if result["perplexity"] is None else result["perplexity"]


def judge(result) -> str | None:
    difference = result["difference"]
    if difference and not any(result["bleu"]["interval"]):
        return "not learned"  # 0 BLEU would agree wherever the paper's row is below base
    return difference and verdict(difference_of(ROWS[result["row"]]), difference["interval"])


def markdown(results, *, factor: int, steps: int, about: str) -> str:
    """Everything to read: the table, the groups, the caveats."""
    signature = results[0]["bleu"]["signature"]
    return f"""\
# Table 3, scaled down

{about} Every width and the vocabulary are the paper's divided by {factor}; a blank cell is as base. BLEU is that of the
validation set, {signature}. A difference to base has its 95 % interval from the paired bootstrap over these sentences.

{table(results, factor, steps)}

## What agrees

{agreement(results)}

One seed a row: the intervals know which sentences were drawn and nothing of the seed, so a difference that barely
clears zero may be the seed's. "Undecided" is a difference that the interval cannot tell from none, "not learned" a row
without any BLEU. The paper has one run a row and no intervals, and its own small differences may be noise too: up to
{NO_DIFFERENCE} BLEU count as none.

## What is not scaled

{NOT_SCALED}
"""


def table(results, factor, steps) -> str:
    columns = list(ROWS["base"].cells)
    head = ["row", *columns, "PPL paper", "PPL", "BLEU paper", "BLEU (95 %)", "to base, paper", "to base (95 %)"]
    head += ["params paper", "params", "verdict"]
    return aligned([head, *(_cells(result, columns, factor, steps) for result in results)])


def _cells(result, columns, factor, steps):
    row = ROWS[result["row"]]
    ours = scaled(row, factor, steps).model
    sizes = dict(zip(WIDTHS, (ours.d_model, ours.d_ff, ours.key_width, ours.value_width), strict=True))
    printed = {**sizes, "steps": f"{steps:,}"}
    name = f"{row.name} (learned positions)" if ours.positions == "learned" else row.name
    settings = [f"{cell} → {printed[c]}" if (cell := row.cells[c]) and c in printed else cell for c in columns]
    bleu, difference = result["bleu"], result["difference"]
    return [
        name,
        *settings,
        f"{row.perplexity:.2f}",
        f"{perplexity_of(result):.2f}",
        f"{row.bleu:.1f}",
        f"{bleu['value']:.1f} ({bleu['interval'][0]:.1f} to {bleu['interval'][1]:.1f})",
        f"{difference_of(row):+.1f}" if difference else "",
        _difference_text(difference) if difference else "",
        f"{row.millions} M" if row.millions else "",
        f"{result['parameters'] / 1e6:.2f} M",
        judge(result) or "",
    ]


def _difference_text(difference):
    low, high = difference["interval"]
    return f"{difference['value']:+.1f} ({low:+.1f} to {high:+.1f})"


def aligned(rows) -> str:
    """A Markdown table whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = ("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows)
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body])


def agreement(results) -> str:
    """A line for each group of rows, one for all, and one for perplexity."""
    lines = []
    for group, (varied, claim) in GROUPS.items():
        members = [result for result in results if result["difference"] and ROWS[result["row"]].group == group]
        if members:
            each = "; ".join(
                f"{result['row']} {difference_of(ROWS[result['row']]):+.1f} in the paper, "
                f"{_difference_text(result['difference'])} here, {judge(result)}"
                for result in members
            )
            lines.append(f"- **{group}, {varied}** ({claim}): {each}.")
    return "\n".join([*lines, f"- **All rows**, BLEU: {_counted(results)}. {_perplexities(results)}"])


def _counted(results):
    verdicts = [judge(result) for result in results if result["difference"]]
    return ", ".join(f"{verdicts.count(name)} {name.removesuffix('s')}" for name in VERDICTS)


def _perplexities(results):
    base = perplexity_of(results[0])
    signs = [
        (ROWS[result["row"]].perplexity > ROWS["base"].perplexity) == (perplexity_of(result) > base)
        for result in results[1:]
        if ROWS[result["row"]].perplexity != ROWS["base"].perplexity
    ]
    return f"Perplexity, without intervals: {sum(signs)} of {len(signs)} differences to base have the paper's sign."
