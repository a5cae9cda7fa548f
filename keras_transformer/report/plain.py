"""The report as plain text."""

from keras_transformer.report.words import (
    NUM_SUSPICIOUS,
    facts,
    interval_text,
    metrics,
    p_value_text,
    shown,
    suspicious_remark,
    verdict,
)

RULE = "-" * 79


def text(evaluation) -> str:
    """The report in plain text, lines ended by "\\n"."""
    e = evaluation
    parts = [
        _head(e),
        _scores(e.scores),
        _lengths(e.by_length),
        _differences(e.differences),
        _examples(f"Suspicious outputs: {suspicious_remark(e.suspicious)}", e.suspicious[:NUM_SUSPICIOUS]),
        _examples("Worst by chrF", e.worst) if e.worst else [],
        _examples("Best by chrF", e.best),
    ]
    return "\n".join("\n".join(part) + "\n" for part in parts if part)


def _head(evaluation):
    title = shown(evaluation.about.title)
    rows = [f"{shown(name):<14}{shown(value)}" for name, value in facts(evaluation).items()]
    return [title, "=" * len(title), "", *rows]


def _scores(scores):
    lines = [f"Scores{'':<17}95 % interval", RULE]
    for each in metrics(scores):
        lines.append(f"{each.name:<7}{each.value:>8.2f}       {interval_text(each.interval):<18}")
    lines += [
        f"{'exact':<7}{100 * scores.exact_match:>8.2f} %",
        f"{'length':<7}{scores.length_ratio:>8.3f}       tokens of the hypotheses / of the references",
        "",
        *(f"{each.name:<7}{each.signature}" for each in metrics(scores)),
    ]
    return [line.rstrip() for line in lines]


def _lengths(rows):
    lines = [f"{'Source, words':<15}{'sentences':>9}{'BLEU':>8}  {'95 % interval':<18}{'length':>7}", RULE]
    for row in rows:
        bar = "█" * round(row.bleu / 5)
        lines.append(
            f"{row.label:<15}{row.num_sentences:>9,}{row.bleu:>8.2f}  {interval_text(row.interval):<18}"
            f"{row.length_ratio:>7.3f}  {bar}".rstrip()
        )
    return lines


def _differences(differences):
    if not differences:
        return []
    lines = [f"{'Other output':<13}{'this':>7}{'other':>9}{'change':>9}  {'95 % interval':<18}p", RULE]
    for d in differences:
        lines.append(
            f"{d.name:<13}{d.value:>7.2f}{d.other:>9.2f}{d.difference:>+9.2f}  {interval_text(d.interval):<18}"
            f"{p_value_text(d.p_value)}  {verdict(d)}"
        )
    return lines


def _examples(title, examples):
    lines = [title, RULE]
    for e in examples:
        lines += [
            f"line {e.line}, chrF {e.chrf:.1f}" + (f", {e.reason}" if e.reason else ""),
            f"    source      {shown(e.source)}".rstrip(),
            f"    hypothesis  {shown(e.hypothesis)}".rstrip(),
            f"    reference   {shown(e.reference)}".rstrip(),
        ]
    return lines
