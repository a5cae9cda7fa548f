"""Outputs that cannot be right, whatever they mean: empty, copied from the source, or going round in circles."""

import re

NUM_WORDS = 10  # the longest loop that is looked for, in words or letters
NUM_LETTERS = 12  # letters that a loop inside of words must fill: "hahaha" is a word, "Rhabarbarbarbarbara" is a fault


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
    """Whether the same words, or the same letters, come three times in a row. Digits and dots may: 1,000,000,000."""
    letters = re.sub(r"[\d\W_]+", " ", " ".join(words))
    return _has_loop(words, shortest=3) or _has_loop(letters, shortest=NUM_LETTERS)


def _has_loop(units, shortest, times=3):
    """Whether some units come `times` times in a row, filling at least `shortest` units."""
    for n in range(1, min(NUM_WORDS, len(units) // times) + 1):
        run = n  # length of the stretch up to here that repeats with period n
        for unit, before in zip(units[n:], units, strict=False):
            run = run + 1 if unit == before else n
            if run >= max(times * n, shortest):
                return True
    return False
