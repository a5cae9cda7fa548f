"""What both forms of the report say in the same words."""

import unicodedata

NUM_SUSPICIOUS = 20  # so many suspicious outputs are shown, all are counted
MAX_CHARACTERS = 400  # a longer sentence is cut: an output in a loop fills pages
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # the direction of the text around


def facts(evaluation) -> dict[str, str]:
    """What is known besides the scores: name -> value."""
    about = evaluation.about
    known = {"sentences": f"{evaluation.scores.num_sentences:,}", **about.details}
    if about.hardware:
        known["hardware"] = about.hardware
    speeds = {"sentences/s": about.sentences_per_second, "tokens/s": about.tokens_per_second}
    speed = ", ".join(f"{value:,.1f} {unit}" for unit, value in speeds.items() if value is not None)
    return {**known, "speed": speed} if speed else known


def metrics(scores):
    return scores.bleu, scores.chrf, scores.ter


def interval_text(interval):
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else ""


def p_value_text(value):
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def verdict(difference):
    if difference.p_value >= 0.05:
        return "may be chance"
    better = (difference.difference > 0) != (difference.name == "TER")  # TER counts edits
    return "better" if better else "worse"


def suspicious_remark(suspicious):
    """How many outputs are suspicious, by reason."""
    reasons = [example.reason for example in suspicious]
    counts = ", ".join(f"{reasons.count(reason):,} {reason}" for reason in sorted(set(reasons)))
    more = len(suspicious) - NUM_SUSPICIOUS
    return (counts or "none") + (f"; the first {NUM_SUSPICIOUS} are shown" if more > 0 else "")


def shown(text):
    """One line of text that can be printed: what would break or hide it is spelt out, what is too long is cut."""
    cut = text[:MAX_CHARACTERS] + " …" if len(text) > MAX_CHARACTERS else text
    return "".join(f"\\u{ord(c):04x}" if _is_invisible(c) else c for c in cut)


def _is_invisible(character):
    # controls, lone surrogates, line and paragraph separators
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in TURNING
