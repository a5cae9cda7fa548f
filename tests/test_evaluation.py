"""Scores are sacreBLEU's, intervals hold them, comparisons tell a difference from chance."""

import dataclasses
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU

from keras_transformer import evaluation, processor, report
from keras_transformer.suspicion import suspicion
from keras_transformer.tokenizer import Tokenizer

WORDS = tuple(f"{a}{b}" for a in ("Hund", "Straße", "猫", "läuft", ".") for b in ("", "en", "er", "!"))


def damaged(lines, share, seed):
    """The lines with a share of their words replaced by others."""
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < share else w for w in line.split()) for line in lines]


@pytest.fixture(scope="module")
def texts():
    """sources, hypotheses, references: 97 sentences of 1 to 29 words."""
    rng = random.Random(3762)
    lengths = [rng.choice((1, 3, 7, 11, 13, 17, 29)) for _ in range(97)]
    references = [" ".join(rng.choices(WORDS, k=length)) for length in lengths]
    sources = [" ".join(f"w{i}" for i in range(length)) for length in lengths]
    return sources, damaged(references, 0.2, seed=1), references


def test_scores_are_those_of_sacrebleu(texts):
    _, hypotheses, references = texts
    scores = evaluation.score(hypotheses, references, num_bootstrap=0)
    assert scores.bleu.value == sacrebleu.corpus_bleu(hypotheses, [references], force=True).score
    assert scores.chrf.value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert scores.ter.value == sacrebleu.corpus_ter(hypotheses, [references]).score
    assert scores.length_ratio == sacrebleu.corpus_bleu(hypotheses, [references], force=True).ratio
    assert scores.bleu.value == evaluation.bleu(hypotheses, references)
    assert [scores.bleu.name, scores.chrf.name, scores.ter.name] == ["BLEU", "chrF2", "TER"]
    assert scores.num_sentences == 97 and scores.bleu.interval is None


def test_without_case_what_a_tokenizer_gives_back_is_perfect():
    texts = ["Ο ΔΡΌΜΟΣ είναι μεγάλος και ο άνθρωπος μόνος .", "Die Straße ist groß und ẞ auch ."]  # noqa: RUF001
    tokenizer = Tokenizer.train(texts * 9, vocab_size=60, lowercase=True)
    read = tokenizer.decode(tokenizer.encode(texts))
    assert read[0] == "ο δρόμοσ είναι μεγάλοσ και ο άνθρωποσ μόνοσ ."  # noqa: RUF001
    found = evaluation.evaluate(texts, read, texts, other=read, lowercase=True, num_bootstrap=2)
    assert found.scores.bleu.value == pytest.approx(100) and found.scores.exact_match == 1
    assert found.scores.chrf.value == pytest.approx(100) and found.scores.ter.value == 0 and not found.worst
    assert [each.bleu for each in found.by_length] == pytest.approx([100] * len(found.by_length))
    assert [each.value for each in found.differences] == pytest.approx([100, 100, 0])
    assert evaluation.bleu(read, texts, lowercase=True) == found.scores.bleu.value > evaluation.bleu(read, texts)


def test_lowercase_and_tokenised_scores_are_those_of_sacrebleu():
    hypotheses, references = (
        ["Der Hund , der läuft .", "Nein, heute (gar) nicht!"],
        ["der hund , der schläft .", "nein, heute (GAR) nichts!"],
    )
    expected = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True, tokenize="none", force=True).score
    options = dict(lowercase=True, tokenize="none")
    scores = evaluation.score(hypotheses, references, num_bootstrap=0, **options)
    assert scores.bleu.value == evaluation.bleu(hypotheses, references, **options) == expected
    assert expected != evaluation.bleu(hypotheses, references, lowercase=True)
    assert scores.bleu.signature.startswith("nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:")
    assert "case:lc" in scores.chrf.signature


def test_text_that_looks_tokenised_is_warned_of_where_it_is_reported(caplog):
    hypotheses, references = ["ein Hund ."] * 100, ["ein Hund ."] * 100
    evaluation.bleu(hypotheses, references)
    evaluation.score(hypotheses, references, tokenize="none", num_bootstrap=0)
    assert not caplog.text
    evaluation.score(hypotheses, references, num_bootstrap=0)
    assert "tokenized period" in caplog.text


def test_without_case_nothing_else_minds_it_either():
    sources, hypotheses, references = ["A Dog", "Ein Hund"], ["ein hund läuft .", "ein hund"], ["Ein Hund läuft .", "x"]
    found = evaluation.evaluate(sources, hypotheses, references, lowercase=True, num_bootstrap=0)
    assert found.scores.exact_match == 0.5
    assert [(example.line, example.reason) for example in found.suspicious] == [(2, "copied")]
    assert evaluation.score(hypotheses, references, num_bootstrap=0).exact_match == 0


def test_languages_without_blanks_have_scores_by_their_own_tokens():
    hypotheses, references = (
        ["我今天去学校上课了。", "他喜欢吃苹果和香蕉。"],
        ["我今天去学校上学了。", "他喜欢吃苹果和梨子。"],
    )
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert evaluation.bleu(hypotheses, references, tokenize="zh") == expected > 40
    assert evaluation.bleu(hypotheses, references) == 0
    assert "tok:zh" in evaluation.score(hypotheses, references, tokenize="zh", num_bootstrap=0).bleu.signature


def test_lines_that_do_not_fit_are_refused_before_anything_is_translated():
    translator = None  # it is not asked
    with pytest.raises(ValueError, match="2 sources, 2 references, 1 other"):
        evaluation.evaluate_translator(translator, ["a", "b"], ["c", "d"], other=["e"])


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="needs a sacreBLEU without Japanese")
def test_a_tokenizer_that_cannot_be_used_is_refused_before_anything_is_translated():
    translator, message = None, r"sacreBLEU's tokenizer 'ja-mecab' cannot be used here: .* pip install sacrebleu\[ja\]"
    with pytest.raises(ValueError, match=message):
        evaluation.evaluate_translator(translator, ["a"], ["c"], tokenize="ja-mecab")
    for score in (evaluation.bleu, evaluation.score):
        with pytest.raises(ValueError, match=message):
            score(["a"], ["c"], tokenize="ja-mecab")


def test_a_tokenizer_whose_file_cannot_be_loaded_is_an_error_of_one_line(monkeypatch):
    def load(**options):
        raise URLError("no network")

    monkeypatch.setattr(evaluation, "BLEU", load)
    with pytest.raises(ValueError, match="tokenizer 'flores200' cannot be used here: <urlopen error no network>"):
        evaluation.check_tokenizer("flores200")


def test_the_speed_is_that_of_the_translating_alone(monkeypatch):
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)

    def taking(seconds, answer):
        clock.now += seconds
        return answer

    translator = SimpleNamespace(
        translate=lambda sources: taking(4.0, ["ein Hund", "zwei kleine Hunde", "ja"]),
        tokenizers=SimpleNamespace(
            source=None, target=SimpleNamespace(encode=lambda texts: taking(50.0, [text.split() for text in texts]))
        ),
        model=SimpleNamespace(count_params=lambda: 1234),
        decode=SimpleNamespace(beam_width=4, alpha=0.6),
    )
    monkeypatch.setattr(evaluation, "time", clock)
    found, _ = evaluation.evaluate_translator(translator, ["a", "b", "c"], ["x", "y", "z"], num_bootstrap=0)
    assert found.about.sentences_per_second == 3 / 4 and found.about.tokens_per_second == 6 / 4


def test_the_interval_is_as_wide_as_sacrebleus_and_so_is_its_signature(texts, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    _, hypotheses, references = texts
    metric = BLEU(force=True)
    theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    ours = evaluation.score(hypotheses, references).bleu
    assert (ours.interval[1] - ours.interval[0]) / 2 == pytest.approx(theirs._ci)
    assert ours.signature == str(metric.get_signature())


def test_intervals_hold_the_score_repeat_and_depend_on_the_seed(texts):
    _, hypotheses, references = texts
    first, again, other = (evaluation.score(hypotheses, references, num_bootstrap=200, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    for score in (first.bleu, first.chrf, first.ter):
        assert score.interval[0] < score.value < score.interval[1]


@pytest.mark.parametrize("texts_", [["ein Hund läuft heute", "猫 猫", "🙂", "e\u0301 \ud800 \x00 \u2028"], ["a"]])
def test_a_perfect_output_is_perfect(texts_):
    scores = evaluation.score(texts_, texts_, num_bootstrap=50)
    assert scores.exact_match == 1 and scores.length_ratio == 1
    assert scores.chrf.value == pytest.approx(100) and scores.ter.value == 0
    assert scores.chrf.interval == pytest.approx((100, 100)) and scores.ter.interval == (0, 0)


def test_an_empty_output_scores_nothing():
    scores = evaluation.score(["", ""], ["ein Hund", "eine Katze"], num_bootstrap=50)
    assert (scores.bleu.value, scores.chrf.value, scores.ter.value) == (0, 0, 100)
    assert (scores.exact_match, scores.length_ratio) == (0, 0)


def test_lines_that_do_not_match_are_refused_with_their_numbers():
    with pytest.raises(ValueError, match="Received: 3 hypotheses, 2 references"):
        evaluation.score(["a"] * 3, ["a"] * 2)
    with pytest.raises(ValueError, match="Received: 2 sources, 2 hypotheses, 1 references"):
        evaluation.by_length(["a"] * 2, ["a"] * 2, ["a"])
    with pytest.raises(TypeError, match="`hypotheses` must be a list of strings, a sentence each. Received: 'hyp.txt'"):
        evaluation.score("hyp.txt", "ref.txt")
    with pytest.raises(ValueError, match="at least one sentence"):
        evaluation.bleu([], [])


def test_classes_of_length_are_scored_apart_and_hold_every_sentence(texts):
    sources, hypotheses, references = texts
    classes = evaluation.by_length(sources, hypotheses, references, edges=(3, 13, 100), num_bootstrap=10, seed=3)
    assert [each.label for each in classes] == ["up to 3", "4 to 13", "14 to 100"]
    assert sum(each.num_sentences for each in classes) == 97
    part = [i for i, source in enumerate(sources) if 4 <= len(source.split()) <= 13]
    expected = evaluation.score([hypotheses[i] for i in part], [references[i] for i in part], num_bootstrap=10, seed=3)
    assert classes[1].bleu == pytest.approx(expected.bleu.value) and classes[1].num_sentences == len(part)
    assert classes[1].interval == expected.bleu.interval and classes[1].length_ratio == expected.length_ratio
    whole = evaluation.evaluate(sources, hypotheses, references, edges=(3, 13, 100), num_bootstrap=10, seed=3)
    assert whole.by_length == classes


def test_the_last_class_of_length_is_open():
    classes = evaluation.by_length(["", "a b", "a b c"], ["x"] * 3, ["x"] * 3, edges=(2,), num_bootstrap=0)
    assert [(each.label, each.num_sentences, each.interval) for each in classes] == [
        ("up to 2", 2, None),
        ("over 2", 1, None),
    ]


def test_a_system_does_not_differ_from_itself(texts):
    _, hypotheses, references = texts
    for difference in evaluation.compare(hypotheses, list(hypotheses), references, num_bootstrap=100):
        assert difference.p_value == 1 and difference.difference == 0 and difference.interval == (0, 0)


def test_a_clearly_better_system_is_found(texts):
    _, hypotheses, references = texts
    worse = damaged(references, 0.5, seed=2)
    bleu, chrf, ter = evaluation.compare(hypotheses, worse, references, num_bootstrap=200)
    for each in (bleu, chrf, ter):
        assert each.p_value < 0.05
        assert each.interval[0] < each.difference < each.interval[1]
        assert each.difference == each.value - each.other
    assert bleu.difference > 0 and chrf.difference > 0 and ter.difference < 0
    assert bleu.p_value == chrf.p_value == ter.p_value == 1 / 201  # none of 200 strays as far, and it is never 0
    assert "bs:200|seed:12345" in bleu.signature
    assert (bleu.value, bleu.other) == (evaluation.bleu(hypotheses, references), evaluation.bleu(worse, references))


def test_the_comparison_is_symmetric(texts):
    _, hypotheses, references = texts
    other = damaged(references, 0.22, seed=3)
    there = evaluation.compare(hypotheses, other, references, num_bootstrap=100)
    back = evaluation.compare(other, hypotheses, references, num_bootstrap=100)
    for one, two in zip(there, back, strict=True):
        assert one.p_value == two.p_value and one.difference == -two.difference


def test_equally_good_systems_rarely_differ(texts):
    references = texts[2][:41]
    p_values = [
        evaluation.compare(
            damaged(references, 0.3, seed=i), damaged(references, 0.3, seed=100 + i), references, num_bootstrap=50
        )[0].p_value
        for i in range(10)
    ]
    assert np.median(p_values) > 0.15 and sum(p < 0.05 for p in p_values) <= 3  # 0.05 of them are expected


def test_a_comparison_without_resamples_is_refused(texts):
    _, hypotheses, references = texts
    with pytest.raises(ValueError, match="num_bootstrap=0"):
        evaluation.compare(hypotheses, hypotheses, references, num_bootstrap=0)


@pytest.mark.parametrize(
    ("source", "hypothesis", "reference", "expected"),
    [
        ("a", "  ", "x", "empty"),
        ("a", "", "", ""),
        ("a b", "a b ", "x y", "copied"),
        ("Berlin", "Berlin", "Berlin", ""),
        ("a", "x x x", "x", "repeated"),
        ("a", "x x", "x", ""),
        ("a", "so x y z x y z x y z", "x y z", "repeated"),
        ("a", "x y z x y z x y", "x y z", ""),
        ("a", "nein nein nein", "nein , nein nein nein", ""),
        ("a", "Rhabarbarbarbarbarbara", "Rhabarber", "repeated"),
        ("a", "猫猫猫猫猫猫猫猫猫猫猫猫", "猫", "repeated"),
        ("a", "hahaha", "haha", ""),
    ],
)
def test_what_is_suspicious(source, hypothesis, reference, expected):
    assert suspicion(source, hypothesis, reference) == expected


@pytest.fixture(scope="module")
def whole(texts):
    sources, hypotheses, references = texts
    hypotheses = ["", sources[1], "x x x", *hypotheses[3:]]
    about = evaluation.About(title="a test", hardware="2 cores", tokens_per_second=1234.5, details={"beam width": "4"})
    return evaluation.evaluate(
        sources, hypotheses, references, other=references, about=about, num_examples=5, num_bootstrap=20
    )


def test_an_evaluation_holds_what_the_functions_give(whole, texts):
    sources, hypotheses, references = texts
    hypotheses = ["", sources[1], "x x x", *hypotheses[3:]]
    assert whole.scores == evaluation.score(hypotheses, references, num_bootstrap=20)
    assert whole.by_length == evaluation.by_length(sources, hypotheses, references, num_bootstrap=20)
    assert whole.differences == evaluation.compare(hypotheses, references, references, num_bootstrap=20)
    assert [(e.line, e.reason) for e in whole.suspicious[:3]] == [(1, "empty"), (2, "copied"), (3, "repeated")]


def test_examples_are_the_worst_and_the_best(whole, texts):
    _, hypotheses, references = texts
    assert len(whole.worst) == len(whole.best) == 5
    worst, best = [e.chrf for e in whole.worst], [e.chrf for e in whole.best]
    assert worst == sorted(worst) and best == sorted(best, reverse=True) and worst[-1] < best[-1]
    example = whole.best[0]
    assert example.hypothesis == hypotheses[example.line - 1] and example.reference == references[example.line - 1]
    assert example.chrf == sacrebleu.sentence_chrf(example.hypothesis, [example.reference]).score


def test_of_equally_good_or_bad_examples_the_longest_come_first():
    references = ["ja", "ein Hund läuft", "zwei Hunde"] * 2
    hypotheses = ["", *references[1:3], *references[3:4], "", ""]
    found = evaluation.evaluate(["a"] * 6, hypotheses, references, num_bootstrap=0)
    assert [(e.line, e.chrf) for e in found.worst] == [(5, 0), (6, 0), (1, 0)]
    assert [(e.line, e.chrf) for e in found.best] == [(2, 100), (3, 100), (4, 100)]


def test_one_sentence_can_be_evaluated():
    whole = evaluation.evaluate(["a"], ["x"], ["x"], num_bootstrap=2)
    assert whole.worst == () and whole.differences == () and whole.scores.exact_match == 1
    assert [example.line for example in whole.best] == [1]
    assert "Best by chrF" in report.text(whole) and "Worst" not in report.text(whole)


def test_no_sentence_that_is_perfect_is_among_the_worst():
    rows = [("a", "x", "x"), ("b", "y", "yes"), ("c", "", ""), ("d", "z  q", "z q")]  # chrF is 0 where nothing is
    whole = evaluation.evaluate(*map(list, zip(*rows, strict=True)), num_bootstrap=2)
    assert [example.line for example in whole.worst] == [2] and len(whole.best) == 2


def test_the_json_of_an_evaluation_holds_all_of_it(whole):
    found = json.loads(whole.to_json())
    assert found.keys() == {field.name for field in dataclasses.fields(whole)}
    assert found["scores"]["bleu"]["value"] == whole.scores.bleu.value
    assert found["scores"]["bleu"]["interval"] == list(whole.scores.bleu.interval)
    assert [example["line"] for example in found["worst"]] == [example.line for example in whole.worst]
    assert [group["bleu"] for group in found["by_length"]] == [group.bleu for group in whole.by_length]


def test_importing_scores_imports_no_network_and_no_matplotlib():
    package = Path(evaluation.__file__).parent
    program = (
        "import sys, types; package = sys.modules['keras_transformer'] = types.ModuleType('keras_transformer');"
        f"package.__path__ = [{str(package)!r}];"
        "import keras_transformer.evaluation, keras_transformer.plots;"
        "assert not {'tensorflow', 'keras', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_report_names_the_processor_and_its_cores():
    assert evaluation._hardware().startswith(f"{processor.PROCESSOR}, {processor.CORES} cores, ")
