"""The report says everything in both forms, and nothing in a sentence can break it."""

import base64
import dataclasses
import re
import sys
from html.parser import HTMLParser
from typing import NamedTuple

import numpy as np
import pytest

from keras_transformer import evaluation, report

HOSTILE = [
    "<script>alert(1)</script> & \"x\" 'y'",
    "a\x00b\u2028c\u202ed\ud800e\nf\u2066",
    "x " * 1000,
    "",
    "猫🙂 &amp;",
]
VOID = {"meta", "img"}


@pytest.fixture(scope="module")
def whole():
    about = evaluation.About(
        title="<Multi30k> & co",
        hardware="2 cores <fast>",
        sentences_per_second=12.34,
        tokens_per_second=1234.5,
        details={"beam <width>": "4 & 0.6"},
    )
    references = ["ein Hund", "zwei Hunde", "drei Hunde", "vier", "fünf & mehr"]
    return evaluation.evaluate(
        HOSTILE, HOSTILE[::-1], references, other=references, about=about, edges=(1,), num_bootstrap=20
    )


class Page(HTMLParser):
    """Checks that tags nest, and keeps the text and the attributes."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def test_both_reports_hold_the_figures(whole):
    text, page = report.text(whole), Page(report.html(whole, {})).text
    for words in (text, page):
        for score in (whole.scores.bleu, whole.scores.chrf, whole.scores.ter):
            assert f"{score.value:.2f}" in words and score.signature in words
            assert f"{score.interval[0]:.2f} to {score.interval[1]:.2f}" in words
        for row in whole.by_length:
            assert row.label in words and f"{row.bleu:.2f}" in words
        for expected in ("12.3 sentences/s", "1,234.5 tokens/s", "2 cores <fast>", "beam <width>", "4 & 0.6", "empty"):
            assert expected in words


def test_no_sentence_can_break_the_page(whole):
    page = Page(report.html(whole, {"<b>a</b>": b"png"}))
    assert not {"script", "b"} & {tag for tag, _ in page.tags}
    assert "<script>alert(1)</script>" in page.text.replace("  ", " ")
    assert r"a\u0000b\u2028c\u202ed\ud800e\u000af\u2066" in page.text
    assert "&amp;" in page.text  # the source, not an entity of the page


def test_reports_are_valid_utf8_and_of_few_lines(whole):
    for words in (report.text(whole), report.html(whole, {})):
        words.encode("utf-8")
        assert not re.search("[\x00\u2028\u202e\u2066]", words)
    assert max(map(len, report.text(whole).split("\n"))) < 450  # what is too long is cut


def test_the_page_stands_alone_with_its_pictures_inside(whole):
    picture = b"\x89PNG\r\n\x1a\n and more"
    page = Page(report.html(whole, {"a picture": picture}))
    (image,) = (attributes for tag, attributes in page.tags if tag == "img")
    prefix, data = image["src"].split(",")
    assert prefix == "data:image/png;base64" and base64.b64decode(data) == picture and image["alt"] == "a picture"
    assert not any(name in attributes for _, attributes in page.tags for name in ("href", "srcset", "onload"))
    assert "url(" not in report.html(whole) and "@import" not in report.html(whole)


def test_many_suspicious_outputs_are_counted_and_some_shown():
    whole = evaluation.evaluate(["a"] * 50, [""] * 50, ["x"] * 50, num_bootstrap=0, num_examples=0)
    for words in (report.text(whole), Page(report.html(whole)).text):
        assert "50 empty; the first 20 are shown" in words
        assert len(re.findall(r"[Ll]ine \d+", words)) == 20


def test_an_evaluation_without_extras_is_reported(whole):
    bare = dataclasses.replace(whole, about=evaluation.About(), differences=(), suspicious=(), worst=(), best=())
    for words in (report.text(bare), Page(report.html(bare)).text):
        assert "speed" not in words and "Other" not in words and "Suspicious outputs: none" in words


@pytest.mark.parametrize(
    ("name", "difference", "p_value", "expected"),
    [("BLEU", 1, 0.01, "better"), ("BLEU", -1, 0.01, "worse"), ("TER", -1, 0.01, "better"), ("BLEU", 1, 0.2, "chance")],
)
def test_the_verdict_knows_which_way_is_up(whole, name, difference, p_value, expected):
    changed = dataclasses.replace(whole.differences[0], name=name, difference=difference, p_value=p_value)
    alone = dataclasses.replace(whole, differences=(changed,))
    assert expected in report.text(alone).split("Other output")[1].split("\n")[2]


def test_words_that_differ_are_marked():
    whole = evaluation.evaluate(["a"], ["ein kleiner Hund läuft"], ["ein großer Hund läuft"], num_bootstrap=0)
    page = report.html(whole)
    assert "ein <mark>kleiner</mark> Hund läuft" in page and "ein <mark>großer</mark> Hund läuft" in page


# --- pictures

PNG = b"\x89PNG\r\n"


class Aligned(NamedTuple):
    """What pictures need of an `Alignment`."""

    source_pieces: list
    target_pieces: list
    maps: tuple


def align(sources, hypotheses):
    """Weights of 2 layers and 3 heads for every pair; the words are the pieces."""
    for source, hypothesis in zip(sources, hypotheses, strict=True):
        s, t = [*source.split(), "</s>"], [*hypothesis.split(), "</s>"]
        shapes = ((len(s), len(s)), (len(t), len(t)), (len(t), len(s)))
        yield Aligned(s, t, tuple(np.full((2, 3, *shape), 0.5, "float32") for shape in shapes))


def evaluated(hypotheses, references):
    sources = [f"{i} sources" for i in range(len(references))]
    return evaluation.evaluate(sources, hypotheses, references, num_bootstrap=20)


def test_the_page_shows_the_attention_of_a_good_a_bad_and_a_suspicious_sentence():
    pytest.importorskip("matplotlib")
    whole = evaluated(
        ["so ist es", "ja ja ja ja", "", "ganz falsch"], ["so ist es", "aber ja", "nein", "etwas anderes"]
    )
    found = report.pictures(whole, align)
    assert all(png.startswith(PNG) for png in found.values())
    assert [*found][1:] == [
        "Attention in line 1, one of the best: 0 sources → so ist es",
        "Attention in line 4, one of the worst: 3 sources → ganz falsch",
        "Attention in line 2, suspicious: 1 sources → ja ja ja ja",
    ]
    page = Page(report.illustrated(whole, align))
    assert [values["alt"] for tag, values in page.tags if tag == "img"] == list(found)


def test_without_a_model_there_is_the_picture_of_lengths_alone():
    pytest.importorskip("matplotlib")
    (caption,) = report.pictures(evaluated(["ja"], ["ja"]))
    assert caption.startswith("BLEU by the length")


def test_no_attention_is_drawn_of_what_cannot_be_read(whole):
    pytest.importorskip("matplotlib")
    assert len(report.pictures(evaluated(["", "x " * 500], ["ja", "nein"]), align)) == 1
    assert report.pictures(whole, align)  # HOSTILE


def test_without_matplotlib_the_page_has_no_pictures_and_that_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = []
    page = report.illustrated(evaluated(["ja"], ["ja"]), align, said.append)
    assert "<img" not in page and "Scores" in page
    assert said[0].startswith("No pictures in the report: ") and ".[plots]" in said[0]
