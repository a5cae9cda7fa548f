"""Outputs that cannot be right, whatever they mean: empty, copied from the source, or going round in circles."""

import unicodedata

LONGEST_LOOP = 10  # that is looked for, in words or letters
MIN_LETTERS = 12  # letters that a loop inside of words must fill: "hahaha" is a word, "Rhabarbarbarbarbara" is a fault


def suspicion(source, hypothesis, reference) -> str:
    """Why a hypothesis cannot be right, or "". What the reference does too is no fault.

    >>> suspicion("ein Hund", "a dog dog dog", "a dog")
    'repeated'
    """
    source, hypothesis, reference = source.split(), hypothesis.split(), reference.split()
    if not hypothesis:
        return "empty" if reference else ""
    if hypothesis == source != reference:
        return "copied"
    return "repeated" if repeats(hypothesis) and not repeats(reference) else ""


def repeats(words) -> bool:
    """Whether the same words, or the same letters, come three times in a row. Digits and marks may: 1,000,000,000."""
    letters = _letters(" ".join(words))
    return _has_loop(words, shortest=3) or any(_has_loop(stretch, shortest=MIN_LETTERS) for stretch in letters)


def _letters(text):
    """The stretches of the text that have letters alone, in words that a space or a hyphen divides."""
    kinds = ((c, unicodedata.category(c)[0]) for c in text)
    stretches = "".join(c if kind in "LM" else " " if c in " -" else "\n" for c, kind in kinds).split("\n")
    return [" ".join(stretch.split()) for stretch in stretches]


def _has_loop(units, shortest, times=3):
    """Whether some units come `times` times in a row, filling at least `shortest` units."""
    for n in range(1, min(LONGEST_LOOP, len(units) // times) + 1):
        run = n  # length of the stretch up to here that repeats with period n
        for unit, before in zip(units[n:], units, strict=False):
            run = run + 1 if unit == before else n
            if run >= max(times * n, shortest):
                return True
    return False
