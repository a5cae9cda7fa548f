import itertools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from keras_transformer.data import demo
from keras_transformer.data import demo_lexicon as lexicon
from keras_transformer.data.demo import (
    SPLITS,
    Clause,
    demo_pairs,
    inverted,
    negated,
    question,
    statement,
    subordinate,
)
from keras_transformer.data.demo_lexicon import PAST, PRESENT, UNREAL, be, conjugate, noun_phrase

NOUNS = {noun.english: noun for noun in lexicon.NOUNS}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES}
VERBS = {verb.english: verb for verb in demo.ACTIVITIES}
MODALS = {modal[0]: modal for modal in lexicon.MODALS}
FINITE = {form for verbs in lexicon.VERBS.values() for verb in verbs for form in verb.finite}
FINITE |= {verb.prefix + form for verbs in lexicon.VERBS.values() for verb in verbs for form in verb.finite}
FINITE |= {form for modal in lexicon.MODALS for form in modal[5]}
FINITE |= {form for _, forms in lexicon.BE.values() for form in forms} | set(lexicon.PERFECT["hat"])

# Another process and another PYTHONHASHSEED. The package itself stays out, since it would import Keras.
PRINT_PAIRS = """
import sys, types
package = sys.modules["keras_transformer"] = types.ModuleType("keras_transformer")
package.__path__ = [sys.argv[1]]
from keras_transformer.data.demo import demo_pairs
for split in ("train", "test"):
    for pair in demo_pairs(split, 200, seed=5):
        sys.stdout.buffer.write(" | ".join(pair).encode() + b"\\n")
"""


@pytest.fixture(scope="module")
def pairs():
    return list(demo_pairs("train", 30_000))


# ---- The sample as a corpus.


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_another_process_yields_the_same_pairs(hash_seed):
    package = Path(demo.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-c", PRINT_PAIRS, str(package)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    expected = [" | ".join(pair) for split in ("train", "test") for pair in demo_pairs(split, 200, seed=5)]
    assert result.stdout.decode().splitlines() == expected


def test_a_short_request_is_the_beginning_of_a_long_one():
    assert list(demo_pairs("valid", 53)) == list(itertools.islice(demo_pairs("valid", 211), 53))


@pytest.mark.parametrize("num_pairs", [0, 1, 17])
def test_it_yields_as_many_pairs_as_asked_for(num_pairs):
    assert len(list(demo_pairs("test", num_pairs))) == num_pairs


def test_seeds_and_splits_differ():
    samples = [tuple(demo_pairs(split, 31, seed)) for split in SPLITS for seed in (0, 1, 2)]
    assert len(set(samples)) == len(samples)


def test_no_sentence_is_in_two_splits_whatever_the_seeds(pairs):
    samples = {split: list(demo_pairs(split, 1_000, seed)) for seed, split in enumerate(SPLITS, start=1)}
    samples["train"] += pairs
    for one, other in itertools.combinations(SPLITS, 2):
        for side in (0, 1):
            sentences = {pair[side] for pair in samples[one]}
            assert sentences.isdisjoint(pair[side] for pair in samples[other])


def test_an_unknown_split_is_refused_at_once():
    with pytest.raises(ValueError, match=r"must be one of train, valid, test\. Received: split='dev'\."):
        demo_pairs("dev", 1)


def test_no_sentence_comes_twice_and_translation_is_a_function_both_ways(pairs):
    assert len({english for english, _ in pairs}) == len(pairs)
    assert len({german for _, german in pairs}) == len(pairs)


def test_the_grammar_has_millions_of_sentences():
    """One that comes x times on average is drawn never, once or twice with e^-x, x e^-x and x^2/2 e^-x. So, by Cauchy
    and Schwarz, at least once^2 / (2 twice) of all sentences were not drawn (Chao's bound)."""
    grammar = demo.Grammar(seed=7)
    drawn = Counter(grammar.sentence()[0] for _ in range(150_000))
    once, twice = (list(drawn.values()).count(times) for times in (1, 2))
    assert len(drawn) + once**2 / (2 * twice) > 2_000_000


def test_sentences_are_clean_text(pairs):
    for english, german in pairs:
        assert re.fullmatch(r"[A-Z]([A-Za-z-]|,? (?! ))*[.?]", english), english
        assert re.fullmatch(r"[A-ZÄÖÜ]([A-Za-zÄÖÜäöüß]|,? (?! ))*[.?]", german), german
        assert english[-1] == german[-1]


def test_most_sentences_have_4_to_14_words_and_every_word_is_frequent(pairs):
    lengths = [len(sentence.split()) for pair in pairs for sentence in pair]
    assert sum(4 <= length <= 14 for length in lengths) > 0.9 * len(lengths)
    text = " ".join(english.lower() for english, _ in pairs)
    for word in [*lexicon.NOUNS, *lexicon.ADJECTIVES, *demo.ACTIVITIES]:
        assert text.count(word.english.lower()) > 50, word.english


# ---- Words: hand-written German.


@pytest.mark.parametrize(
    ("noun", "determiner", "plural", "adjective", "english", "german"),
    [
        ("apple", "A", 0, None, "an apple", "ein Apfel, einen Apfel, einem Apfel"),
        ("hat", "A", 0, "old", "an old hat", "ein alter Hut, einen alten Hut, einem alten Hut"),
        ("lamp", "A", 0, "old", "an old lamp", "eine alte Lampe, eine alte Lampe, einer alten Lampe"),
        ("book", "A", 0, "good", "a good book", "ein gutes Buch, ein gutes Buch, einem guten Buch"),
        ("hat", "A", 1, "expensive", "expensive hats", "teure Hüte, teure Hüte, teuren Hüten"),
        ("boy", "THE", 0, "tired", "the tired boy", "der müde Junge, den müden Jungen, dem müden Jungen"),
        ("cow", "THE", 0, "white", "the white cow", "die weiße Kuh, die weiße Kuh, der weißen Kuh"),
        ("egg", "THE", 0, "big", "the big egg", "das große Ei, das große Ei, dem großen Ei"),
        ("man", "THE", 1, None, "the men", "die Männer, die Männer, den Männern"),
        ("student", "THIS", 0, None, "this student", "dieser Student, diesen Studenten, diesem Studenten"),
        (
            "car",
            "THIS",
            1,
            "new",
            "these new cars",
            "diese neuen Autos, diese neuen Autos, diesen neuen Autos",
        ),
        ("queen", "WHICH", 0, None, "which queen", "welche Königin, welche Königin, welcher Königin"),
        ("ball", "NO", 0, "red", "a red ball", "kein roter Ball, keinen roten Ball, keinem roten Ball"),
        ("milk", "MASS", 0, "cold", "cold milk", "kalte Milch, kalte Milch, kalter Milch"),
        ("coffee", "MASS", 0, "good", "good coffee", "guter Kaffee, guten Kaffee, gutem Kaffee"),
        ("tea", "NO_MASS", 0, "cold", "cold tea", "kein kalter Tee, keinen kalten Tee, keinem kalten Tee"),
        ("cow", "HOW_MANY", 1, None, "how many cows", "wie viele Kühe, wie viele Kühe, wie vielen Kühen"),
    ],
)
def test_determiner_adjective_and_noun_agree(noun, determiner, plural, adjective, english, german):
    phrase = noun_phrase(NOUNS[noun], getattr(lexicon, determiner), bool(plural), ADJECTIVES.get(adjective))
    assert (phrase.english, ", ".join(phrase.german)) == (english, german)


@pytest.mark.parametrize(
    ("owner", "german"),
    [("I", "meine"), ("you", "deine"), ("he", "seine"), ("she", "ihre"), ("we", "unsere"), ("they", "ihre")],
)
def test_possessives_follow_their_owner(owner, german):
    phrase = noun_phrase(NOUNS["lamp"], lexicon.POSSESSIVES[owner], False, None)
    assert phrase.german[0] == f"{german} Lampe"


@pytest.mark.parametrize(
    ("noun", "plural", "nominative"),
    [
        ("man", 0, "er"),
        ("queen", 0, "sie"),
        ("girl", 0, "es"),
        ("coat", 0, "er"),
        ("lamp", 0, "sie"),
        ("car", 0, "es"),
        ("car", 1, "sie"),
    ],
)
def test_a_pronoun_has_the_gender_of_its_noun(noun, plural, nominative):
    phrase = noun_phrase(NOUNS[noun], lexicon.THE, bool(plural), None)
    assert lexicon.PRONOUNS[phrase.pronoun].german[0] == nominative


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (111, "one hundred and eleven", "einhundertelf"),
        (345, "three hundred and forty-five", "dreihundertfünfundvierzig"),
        (630, "six hundred and thirty", "sechshundertdreißig"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
    ],
)
def test_numbers_are_spelt_out(number, english, german):
    assert (lexicon.english_number(number), lexicon.german_number(number)) == (english, german)


def test_all_numbers_have_different_words():
    assert len({lexicon.english_number(number) for number in range(1000)}) == 1000
    assert len({lexicon.german_number(number) for number in range(1000)}) == 1000


# ---- Clauses: hand-written pairs.


def clause(subject, verb, tense, rest=("the door", "die Tür")):
    phrase = lexicon.PRONOUNS[subject] if subject in lexicon.PRONOUNS else the(subject)
    return Clause(phrase, conjugate(VERBS[verb], tense, phrase.agreement), rest)


def the(noun):
    return noun_phrase(NOUNS[noun], lexicon.THE, False, None)


@pytest.mark.parametrize(
    ("order", "tense", "english", "german"),
    [
        (statement, PRESENT, "the boy opens the door", "der Junge macht die Tür auf"),
        (statement, PAST, "the boy opened the door", "der Junge hat die Tür aufgemacht"),
        (statement, "want to", "the boy wants to open the door", "der Junge will die Tür aufmachen"),
        (inverted, PRESENT, "today the boy opens the door", "heute macht der Junge die Tür auf"),
        (inverted, PAST, "today the boy opened the door", "heute hat der Junge die Tür aufgemacht"),
        (inverted, "will", "today the boy will open the door", "heute wird der Junge die Tür aufmachen"),
        (question, PRESENT, "does the boy open the door", "macht der Junge die Tür auf"),
        (question, PAST, "did the boy open the door", "hat der Junge die Tür aufgemacht"),
        (question, "have to", "does the boy have to open the door", "muss der Junge die Tür aufmachen"),
        (
            question,
            "would like to",
            "would the boy like to open the door",
            "möchte der Junge die Tür aufmachen",
        ),
        (subordinate, PRESENT, "that the boy opens the door", "dass der Junge die Tür aufmacht"),
        (subordinate, PAST, "that the boy opened the door", "dass der Junge die Tür aufgemacht hat"),
        (subordinate, "can", "that the boy can open the door", "dass der Junge die Tür aufmachen kann"),
    ],
)
def test_each_order_puts_the_parts_of_the_verb_in_their_places(order, tense, english, german):
    front = {inverted: ("today", "heute"), subordinate: ("that", "dass"), question: ("", "")}.get(order)
    said = clause("boy", "open", MODALS.get(tense, tense))
    assert (order(said) if front is None else order(front, said)) == (english, german)


@pytest.mark.parametrize(
    ("subject", "verb", "tense", "english", "german"),
    [
        ("I", "sleep", PRESENT, "I sleep", "ich schlafe"),
        ("you", "sleep", PRESENT, "you sleep", "du schläfst"),
        ("she", "sleep", PRESENT, "she sleeps", "sie schläft"),
        ("they", "sleep", PRESENT, "they sleep", "sie schlafen"),
        ("we", "go", PAST, "we went", "wir sind gegangen"),
        ("he", "get up", PAST, "he got up", "er ist aufgestanden"),
        ("you", "sing", PAST, "you sang", "du hast gesungen"),
        ("it-f", "work", "should", "it should work", "sie sollte arbeiten"),
    ],
)
def test_verbs_agree_and_choose_haben_or_sein(subject, verb, tense, english, german):
    assert statement(clause(subject, verb, MODALS.get(tense, tense), ("", ""))) == (english, german)


@pytest.mark.parametrize(
    ("tense", "english"),
    [
        (PRESENT, "he does not sing"),
        (PAST, "he did not sing"),
        ("can", "he cannot sing"),
        ("have to", "he does not have to sing"),
        ("would like to", "he would not like to sing"),
    ],
)
def test_english_negation_takes_an_auxiliary(tense, english):
    subject, verb, rest = clause("he", "sing", MODALS.get(tense, tense), ("", ""))
    assert statement(Clause(subject, negated(verb), rest))[0] == english


def test_the_verb_to_be_is_conjugated_in_three_tenses():
    assert [be(PRESENT, agreement).finite for agreement in range(4)] == ["bin", "bist", "ist", "sind"]
    assert [be(PAST, agreement).plain for agreement in range(4)] == ["was", "were", "was", "were"]
    assert [be(UNREAL, agreement).final for agreement in range(4)] == ["wäre", "wärst", "wäre", "wären"]


@pytest.mark.parametrize(
    ("verb", "noun", "german"),
    [
        ("see", "man", "den Mann"),
        ("help", "man", "dem Mann"),
        ("listen to", "woman", "der Frau"),
        ("wait for", "bus", "auf den Bus"),
        ("think of", "boy", "an den Jungen"),
        ("talk to", "child", "mit dem Kind"),
        ("dream of", "dog", "vom Hund"),
        ("dream of", "cow", "von der Kuh"),
    ],
)
def test_a_verb_governs_case_and_preposition(verb, noun, german):
    assert demo.governed(VERBS[verb], the(noun)) == german


# ---- Sentences: what has to hold in each of them.


def test_a_subordinate_clause_ends_with_the_finite_verb(pairs):
    found = [re.search(r", (weil|obwohl|dass|ob|als ob) .* (\w+)[.]$", german) for _, german in pairs]
    found = [match for match in found if match]
    assert {match[1] for match in found} == {"weil", "obwohl", "dass", "ob", "als ob"}
    assert {match[2] for match in found} <= FINITE


def test_the_finite_verb_is_second_even_behind_a_time_or_a_clause(pairs):
    times = "|".join(german for _, german in demo.NOW + demo.BEFORE + demo.LATER)
    found = [re.match(rf"(?i:{times}|wenn [^,]*,) (\w+) ", german) for _, german in pairs]
    found = [match[1] for match in found if match]
    assert len(found) > 1000
    assert set(found) <= FINITE


@pytest.mark.parametrize(
    ("article", "pronoun"),
    [("diesen", "er"), ("den", "er"), ("diese", "sie"), ("das", "es"), ("dieses", "es")],
)
def test_a_thing_comes_up_again_in_its_own_gender(pairs, article, pronoun):
    pattern = rf"kauf(?:e|st|t|en) {article} \w+(?: nicht)?, weil (\w+) "
    matches = [re.search(pattern, german) for english, german in pairs if "because it" in english]
    assert {match[1] for match in matches if match} == {pronoun}


def test_negation_says_kein_or_nicht_once_and_english_says_not(pairs):
    for english, german in pairs:
        negations = len(re.findall(r"\b(?:nicht|kein\w*)\b", german))
        assert negations == len(re.findall(r"\b(?:not|cannot)\b", english)), (english, german)


def test_a_statement_in_the_past_tells_its_time(pairs):
    times = [english for english, _ in demo.BEFORE]
    pasts = {verb.english_past for verb in demo.ACTIVITIES} - {verb.english for verb in demo.ACTIVITIES}
    for english, _ in pairs:
        if english.endswith(".") and pasts & set(re.findall(r"\w+", english)):
            assert any(time in english.lower() for time in times), english


def test_prepositions_melt_into_articles(pairs):
    text = " ".join(german.lower() for _, german in pairs)
    for separate, melted in demo.MELTED:
        assert f" {melted} " in text
        assert f" {separate} " not in text
