"""The report as one HTML page."""

import base64
import difflib
from html import escape

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


def html(evaluation, pictures=None) -> str:
    """The report as one page that needs nothing else: no scripts, no fonts, pictures inside.

    Args:
        evaluation: an `Evaluation`.
        pictures: {caption: PNG bytes}, in the order in which they are shown.
    """
    e, title, remark = evaluation, _text(evaluation.about.title), suspicious_remark(evaluation.suspicious)
    sections = [
        _section("Scores, with 95 % intervals" if e.scores.bleu.interval else "Scores", _scores(e.scores)),
        _section("By length of the source", _lengths(e.by_length)),
        _section("Against another output", _differences(e.differences)),
        _section("Pictures", "".join(_picture(*item) for item in (pictures or {}).items())),
        _section(f"Suspicious outputs: {escape(remark)}", _examples(e.suspicious[:NUM_SUSPICIOUS]), True),
        _section("Worst by chrF", _examples(e.worst)),
        _section("Best by chrF", _examples(e.best)),
    ]
    rows = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts(e).items())
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<header>\n<h1>{title}</h1>\n<dl>{rows}</dl>\n</header>\n"
        f"{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _text(text):
    return escape(shown(text))


def _section(title, body, always=False):
    return f"<section>\n<h2>{title}</h2>\n{body}</section>\n" if body or always else ""


def _scores(scores):
    cards = []
    for each in metrics(scores):
        note = "lower is better" if each.name == "TER" else "higher is better"
        cards.append(_card(each.name, f"{each.value:.2f}", note, each.interval))
    cards.append(_card("Exact match", f"{100 * scores.exact_match:.1f} %", "equal to the reference"))
    cards.append(_card("Length ratio", f"{scores.length_ratio:.3f}", "tokens, hypothesis / reference"))
    signatures = "".join(
        f"<div><dt>{escape(each.name)}</dt><dd><code>{escape(each.signature)}</code></dd></div>"
        for each in metrics(scores)
    )
    return (
        f'<div class="cards">{"".join(cards)}</div>\n'
        f"<details><summary>Signatures</summary><dl>{signatures}</dl>"
        f"<p>An interval holds the middle 95 % of the scores of bootstrap resamples (bs).</p></details>\n"
    )


def _card(name, value, note, interval=None):
    spread = f"{_bar(*interval)}<p>{interval_text(interval)}</p>" if interval else ""
    return f"<article><h3>{escape(name)}</h3><strong>{value}</strong>{spread}<small>{note}</small></article>"


def _bar(low, high):
    """The part from `low` to `high` of a scale of 0 to 100; the figures stand beside it."""
    low, high = max(0.0, min(low, 99.0)), min(high, 100.0)
    return (
        f'<span class="bar" aria-hidden="true">'
        f'<i style="margin-left:{low:.2f}%;width:{max(high - low, 1):.2f}%"></i></span>'
    )


def _lengths(rows):
    body = [
        f"<tr><th scope='row'>{escape(row.label)}</th><td>{row.num_sentences:,}</td><td>{row.bleu:.2f}</td>"
        f"<td>{interval_text(row.interval)}</td><td>{row.length_ratio:.3f}</td>"
        f'<td class="wide">{_bar(0, row.bleu)}</td></tr>'
        for row in rows
    ]
    head = ("Source, words", "Sentences", "BLEU", "95 % interval", "Length ratio", "")
    return _table(head, body)


def _differences(differences):
    body = [
        f"<tr><th scope='row'>{escape(d.name)}</th><td>{d.value:.2f}</td><td>{d.other:.2f}</td>"
        f"<td>{d.difference:+.2f}</td><td>{interval_text(d.interval)}</td><td>{escape(p_value_text(d.p_value))}</td>"
        f"<td>{verdict(d)}</td></tr>"
        for d in differences
    ]
    head = ("Metric", "This output", "Other", "Difference", "95 % interval", "p", "Verdict")
    return _table(head, body) if body else ""


def _table(head, body):
    cells = "".join(f"<th scope='col'>{escape(cell)}</th>" if cell else "<td></td>" for cell in head)
    return f"<div class='scroll'><table><thead><tr>{cells}</tr></thead><tbody>{''.join(body)}</tbody></table></div>\n"


def _picture(caption, png):
    data, caption = base64.b64encode(png).decode("ascii"), _text(caption)
    image = f'<img src="data:image/png;base64,{data}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>\n"


def _examples(examples):
    return "".join(_example(example) for example in examples)


def _example(e):
    reason = f' <span class="reason">{escape(e.reason)}</span>' if e.reason else ""
    hypothesis, reference = _marked(shown(e.hypothesis), shown(e.reference))
    lines = (("source", _text(e.source)), ("hypothesis", hypothesis or "<em>nothing</em>"), ("reference", reference))
    rows = "".join(f'<div><dt>{name}</dt><dd dir="auto">{value}</dd></div>' for name, value in lines)
    return f'<article class="example"><h3>Line {e.line}, chrF {e.chrf:.1f}{reason}</h3><dl>{rows}</dl></article>\n'


def _marked(hypothesis, reference):
    """Both sentences, the words marked that the other does not have in that place."""
    sides = hypothesis.split(), reference.split()
    marked = [], []
    for kind, *bounds in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for side, words, (begin, end) in zip(marked, sides, (bounds[:2], bounds[2:]), strict=True):
            if begin < end:
                run = escape(" ".join(words[begin:end]))
                side.append(run if kind == "equal" else f"<mark>{run}</mark>")
    return " ".join(marked[0]), " ".join(marked[1])


STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1b1f24; --quiet: #59636e; --line: #d9dee4;
  --accent: #0b62a4; --mark: #fde9c8; --mark-ink: #6b3d00; }
@media (prefers-color-scheme: dark) { :root { --page: #14171b; --card: #1d2126; --ink: #e6e9ec; --quiet: #9aa4af;
  --line: #343b43; --accent: #6cb6f0; --mark: #4a3413; --mark-ink: #ffd9a0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: .9rem; font-weight: 600; color: var(--quiet); margin: 0; }
dl { margin: 0; } dl div { display: flex; gap: 1rem; padding: .15rem 0; }
dt { flex: 0 0 7rem; color: var(--quiet); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; }
article, table, details { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
article { padding: .9rem 1rem; } article p { margin: 0; font-size: .875rem; }
article strong { display: block; font-size: 1.9rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
small { color: var(--quiet); }
.bar { display: block; height: .4rem; margin: .35rem 0; border-radius: .2rem; background: var(--line);
  overflow: hidden; }
.bar i { display: block; height: 100%; background: var(--accent); }
details { margin-top: .75rem; padding: .6rem 1rem; } summary { cursor: pointer; } code { font-size: .875rem; }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .75rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead th { border-top: 0; font-size: .85rem; color: var(--quiet); } th:first-child { text-align: left; }
thead td { border-top: 0; }
td.wide { width: 28%; min-width: 8rem; }
figure { margin: 0 0 1rem; padding: .75rem; background: #fff; border: 1px solid var(--line); border-radius: .5rem; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { margin-top: .5rem; color: #59636e; font-size: .9rem; }
.example { margin-bottom: .75rem; } .example dl { margin-top: .35rem; }
mark { background: var(--mark); color: var(--mark-ink); border-radius: .2rem; padding: 0 .1rem;
  text-decoration: underline dotted; text-underline-offset: .2em; }
.reason { margin-left: .5rem; padding: .05rem .5rem; border: 1px solid currentcolor; border-radius: 1rem; }
@media print { body { background: none; } article, figure, tr { break-inside: avoid; } }
"""
