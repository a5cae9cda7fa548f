"""The built-in corpus: a small synchronous grammar that writes each sentence in English and in German at once.

The words are in `demo_lexicon.py`. A rule of the grammar draws words and builds a `Clause`: all that is said, in both
languages, but in no order yet. Four functions put it in order, and there the languages part ways:

    subject        verb               rest         front
    the boy        PAST open          the door     yesterday
    der Junge      PAST auf|machen    die Tür      gestern

    inverted       Yesterday the boy opened the door.       Gestern hat der Junge die Tür aufgemacht.
    question       Did the boy open the door?               Hat der Junge die Tür aufgemacht?
    subordinate    ... that the boy opened the door ...     ..., dass der Junge die Tür aufgemacht hat ...
    statement      The boy opened the door yesterday.       Der Junge hat gestern die Tür aufgemacht.

Translation is a function in both directions. Where one language leaves open what the other has to decide, the grammar
keeps away: "you" is always du, "them" is no object (it would be sie, like "her"), and a statement in the past always
comes with its time ("I read the book" does not tell).
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

from keras_transformer.data import demo_lexicon as lexicon
from keras_transformer.data.demo_lexicon import ACCUSATIVE, DATIVE, MANY, PAST, PRESENT, THE, THIRD, UNREAL
from keras_transformer.data.demo_lexicon import Adjective, Noun, Phrase, Verb, VerbGroup, be, conjugate

SPLITS = ("train", "valid", "test")
Pair = tuple[str, str]  # English, German
NOTHING = ("", "")


class Clause(NamedTuple):
    subject: Phrase
    verb: VerbGroup
    rest: Pair = NOTHING


def words(*pairs: Pair) -> Pair:
    """Joins the English sides and the German sides. What is empty leaves no blank."""
    english, german = zip(*pairs, strict=True)
    return " ".join(filter(None, english)), " ".join(filter(None, german))


def statement(clause: Clause) -> Pair:
    subject, verb, rest = clause
    return words(subject.nominative, (verb.plain, verb.finite), rest, ("", verb.end))


def inverted(front: Pair, clause: Clause) -> Pair:
    subject, verb, rest = clause
    return words(front, ("", verb.finite), subject.nominative, (verb.plain, ""), rest, ("", verb.end))


def question(front: Pair, clause: Clause) -> Pair:
    subject, verb, rest = clause
    return words(
        front, (verb.auxiliary, verb.finite), subject.nominative, (verb.rest, ""), rest, ("", verb.end)
    )


def subordinate(front: Pair, clause: Clause) -> Pair:
    subject, verb, rest = clause
    return words(front, subject.nominative, (verb.plain, ""), rest, ("", verb.final))


def clauses(first: Pair, second: Pair) -> Pair:
    """German sets a comma between two clauses, English not between these."""
    return f"{first[0]} {second[0]}", f"{first[1]}, {second[1]}"


def negated(verb: VerbGroup) -> VerbGroup:
    """In English. The German nicht or kein stands among the rest of the clause."""
    auxiliary = "cannot" if verb.auxiliary == "can" else f"{verb.auxiliary} not"
    return verb._replace(plain=f"{auxiliary} {verb.rest}".rstrip())


def phrase_book(text: str) -> list[Pair]:
    """`"today = heute, now = jetzt"` -> `[("today", "heute"), ("now", "jetzt")]`."""
    return [tuple(entry.strip().split(" = ")) for entry in text.split(",")]


NOW = phrase_book("today = heute, every day = jeden Tag, in winter = im Winter, in the evening = am Abend")
BEFORE = phrase_book("yesterday = gestern, last week = letzte Woche, two days ago = vor zwei Tagen")
LATER = phrase_book("tomorrow = morgen, next week = nächste Woche, on Monday = am Montag")
OFTEN = phrase_book("often = oft, always = immer, never = nie, sometimes = manchmal")
WHY = phrase_book("why = warum, when = wann")
WEATHER = phrase_book("it rains = es regnet, it is cold = es kalt ist, the sun shines = die Sonne scheint")
SPOTS = phrase_book("under = unter, on = auf, next to = neben, behind = hinter")
CONTRACTIONS = dict(
    phrase_book("in dem = im, in das = ins, an dem = am, von dem = vom, zu dem = zum, zu der = zur")
)
NAMES = [Phrase(name, name, (name,) * 3, THIRD, "name", "she") for name in ("Anna", "Maria", "Emma", "Lisa")]
NAMES += [Phrase(name, name, (name,) * 3, THIRD, "name", "he") for name in ("Peter", "Paul", "Max", "Tom")]
WHO = Phrase("who", "who", ("wer", "wen", "wem"), THIRD, "who", "he")

TIMELESS = [PRESENT] * 6 + lexicon.MODALS
TENSES = TIMELESS + [PAST] * 4
WISHES = [PRESENT] * 2 + [
    modal for modal in lexicon.MODALS if modal[0] in ("will", "want to", "would like to")
]
TAGS = {tag for word in (*lexicon.NOUNS, *lexicon.ADJECTIVES) for tag in word.tags}
NOUNS = {tag: [noun for noun in lexicon.NOUNS if tag in noun.tags] for tag in TAGS}
ADJECTIVES = {tag: [adjective for adjective in lexicon.ADJECTIVES if tag in adjective.tags] for tag in TAGS}
(LOOK, COST), SPEECH = lexicon.VERBS["single"], lexicon.VERBS["speech"]
ACTIVITIES = [
    verb for frame, verbs in lexicon.VERBS.items() if frame not in ("speech", "single") for verb in verbs
]
OBJECTS = {verb: [noun for noun in lexicon.NOUNS if verb.tags & noun.tags] for verb in ACTIVITIES}
ASKABLE = [verb for verb in ACTIVITIES if verb.frame in ("acc", "dat", "preposition")]
BUY = next(verb for verb in ACTIVITIES if verb.english == "buy")
MY, OURS = lexicon.POSSESSIVES["I"], [lexicon.POSSESSIVES[owner] for owner in ("I", "you", "he", "she", "we")]
KNOWN = [THE, THE, lexicon.THIS]


@cache
def adjectives(kind: str, mood: str) -> list[Adjective]:
    return [adjective for adjective in ADJECTIVES[kind] if mood in adjective.tags]


def governed_case(verb: Verb) -> int:
    return DATIVE if verb.frame == "dat" or verb.preposition in ("mit", "von") else ACCUSATIVE


def with_preposition(preposition: str, german: str) -> str:
    first, _, others = german.partition(" ")
    contraction = CONTRACTIONS.get(f"{preposition} {first}")
    return f"{contraction} {others}" if contraction else f"{preposition} {german}".strip()


class Grammar:
    """Draws phrases, then clauses, then sentences."""

    def __init__(self, seed: int):
        self.random = Random(
            seed
        ).random  # the only method of Random whose numbers Python promises not to change

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    # ---- Phrases: who and what, where and when.

    def mention(
        self, noun: Noun, determiners: Sequence, plural: float = 0.25, adjective: float = 0.25
    ) -> Phrase:
        several = noun.english_plural != "" and self.chance(plural)
        attribute = self.pick(ADJECTIVES[noun.kind]) if self.chance(adjective) else None
        return lexicon.noun_phrase(noun, self.pick(determiners), several, attribute)

    def topic(self, noun: Noun, adjective: float = 0.25) -> Phrase:
        """Something definite, to begin a sentence with."""
        if "family" in noun.tags:
            return self.mention(noun, OURS, adjective=adjective)
        return self.mention(
            noun, KNOWN if noun.kind in ("person", "place") else KNOWN + OURS, adjective=adjective
        )

    def person(self) -> Phrase:
        choice = self.random()
        if choice < 0.3:
            return lexicon.PRONOUNS[self.pick(("I", "you", "he", "she", "we", "they"))]
        return self.pick(NAMES) if choice < 0.45 else self.topic(self.pick(NOUNS["person"]))

    def numeral(self, limit: int) -> lexicon.Determiner:
        number = 2 + int(self.random() * (limit - 1))
        return lexicon.amount(lexicon.english_number(number), lexicon.german_number(number))

    def object(
        self, nouns: Sequence[Noun], subject: Phrase, negative: bool = False, definite: bool = False
    ) -> Phrase:
        noun = self.pick(nouns)
        while noun.english in subject.english:  # nobody helps himself
            noun = self.pick(nouns)
        if noun.kind == "person" and self.chance(0.35):
            return self.other_than(subject)
        own = MY if subject.kind == "animal" else lexicon.POSSESSIVES[subject.pronoun]
        if "family" in noun.tags:
            return self.mention(noun, (own, own, MY))
        if definite:
            return self.mention(noun, KNOWN)
        if noun.kind == "drink":
            return self.mention(noun, (lexicon.NO_MASS if negative else lexicon.MASS, THE))
        if noun.kind == "clothes" and subject.agreement != MANY:  # one coat each
            return self.mention(noun, (THE, own, lexicon.NO if negative else lexicon.A), plural=0)
        if noun.kind != "person" and not negative and self.chance(0.05):
            return self.mention(noun, (self.numeral(12),), plural=1)
        indefinite = lexicon.NO if negative else lexicon.A
        return self.mention(noun, (*KNOWN, indefinite, indefinite, THE if noun.kind == "person" else own))

    def other_than(self, subject: Phrase) -> Phrase:
        """A name or a pronoun. I do not meet us."""
        if self.chance(0.4):
            return self.pick([name for name in NAMES if name is not subject])
        taken = ("I", "we") if subject.pronoun in ("I", "we") else (subject.pronoun,)
        return lexicon.PRONOUNS[
            self.pick([key for key in ("I", "you", "he", "she", "we") if key not in taken])
        ]

    def place(self, verb: Verb) -> Pair:
        if "whither" in verb.tags:
            noun = self.pick(NOUNS["far" if "afar" in verb.tags else "place"])
            return self.at(
                noun, *(("into", "in", ACCUSATIVE) if "inside" in noun.tags else ("to", "zu", DATIVE))
            )
        if "on" in verb.tags:
            return self.at(self.pick(NOUNS["furniture"]), *self.pick(SPOTS[1:]), DATIVE)
        if "onto" in verb.tags:
            return self.at(self.pick(NOUNS["furniture"]), *self.pick(SPOTS), ACCUSATIVE)
        if "where" in verb.tags and self.chance(0.25):
            noun = self.pick(NOUNS["place"])
            return self.at(noun, *(("in", "in", DATIVE) if "inside" in noun.tags else ("at", "an", DATIVE)))
        return NOTHING

    def at(self, noun: Noun, english: str, german: str, case: int) -> Pair:
        phrase = self.mention(noun, KNOWN, plural=0.05)
        return f"{english} {phrase.english}", with_preposition(german, phrase.german[case])

    def time(self, tense) -> Pair:
        return self.pick({PRESENT: NOW, PAST: BEFORE}.get(tense, LATER))

    # ---- Clauses.

    def complement(self, verb: Verb, subject: Phrase, negative: bool) -> tuple[Pair, Pair]:
        """What follows the verb. A German pronoun or name comes apart from the rest: it goes ahead of the time."""
        nicht, place = ("", "nicht" if negative else ""), self.place(verb)
        if not OBJECTS[verb]:
            return NOTHING, words(nicht, place)
        nouns = NOUNS["creature"] if subject.kind == "animal" else OBJECTS[verb]
        thing = self.object(nouns, subject, negative, definite=negative and verb.frame != "acc")
        english, german = thing.english_object, thing.german[governed_case(verb)]
        if verb.preposition:
            return NOTHING, words(nicht, (english, with_preposition(verb.preposition, german)), place)
        if german.startswith("kein"):
            nicht = NOTHING
        if verb.frame == "give":
            receiver = self.object(NOUNS["person"], subject, definite=True)
            first, second = ("", receiver.german[DATIVE]), (f"{english} to {receiver.english_object}", german)
        else:
            receiver, first, second = thing, ("", german), (english, "")
        if receiver.kind in ("pronoun", "name"):
            return first, words(second, nicht, place)
        return NOTHING, words(first, second, nicht, place)

    def activity(
        self, tense=None, time: Pair | None = None, subject: Phrase | None = None, negative=False
    ) -> Clause:
        """Somebody does something. If it was in the past, the sentence says when."""
        verb, tense = self.pick(ACTIVITIES), tense or self.pick(TENSES)
        if subject is None:
            by_animal = verb.tags & {"animals", "creature"} and self.chance(0.3)
            subject = self.topic(self.pick(NOUNS["animal"])) if by_animal else self.person()
        if time is None:
            time = self.time(tense) if not negative and (tense == PAST or self.chance(0.25)) else NOTHING
        ahead, rest = self.complement(verb, subject, negative)
        group = conjugate(verb, tense, subject.agreement)
        rest = words(ahead, ("", time[1]), rest, (time[0], ""))
        return Clause(subject, negated(group) if negative else group, rest)

    def quality(
        self, subject: Phrase, adjective: Adjective, tense: str = PRESENT, negative: bool = False
    ) -> Clause:
        group = be(tense, subject.agreement)
        rest = words(("", "nicht" if negative else ""), (adjective.english, adjective.german))
        return Clause(subject, negated(group) if negative else group, rest)

    def clause(self, negative: bool = False) -> Clause:
        if self.chance(0.8):
            return self.activity(negative=negative)
        noun = self.pick(lexicon.NOUNS)
        subject = self.person() if noun.kind == "person" else self.topic(noun, adjective=0)
        return self.quality(subject, self.pick(ADJECTIVES[noun.kind]), self.pick((PRESENT, PAST)), negative)

    # ---- Sentences. RULES shows an example of each.

    def told(self) -> Pair:
        return statement(self.clause())

    def denied(self) -> Pair:
        return statement(self.clause(negative=True))

    def fronted(self) -> Pair:
        tense = self.pick(TENSES)
        negative = tense != PRESENT and self.chance(0.3)
        return inverted(self.time(tense), self.activity(tense, NOTHING, negative=negative))

    def habitual(self) -> Pair:
        often, oft = self.pick(OFTEN)
        subject, verb, rest = self.activity(PRESENT, ("", oft))
        return statement(Clause(subject, verb._replace(plain=f"{often} {verb.plain}"), rest))

    def asked(self) -> Pair:
        return question(NOTHING, self.clause())

    def asked_why(self) -> Pair:
        return question(self.pick(WHY), self.activity(time=NOTHING))

    def asked_who(self) -> Pair:
        return statement(self.activity(subject=WHO))

    def asked_what(self) -> Pair:
        verb, subject, tense = self.pick(ASKABLE), self.person(), self.pick(TENSES)
        noun, preposition = self.pick(OBJECTS[verb]), verb.preposition
        if noun.kind != "person" and (not noun.english_plural or self.chance(0.3)):
            linked = f"wo{'r' if preposition[:1] in ('a', 'ü') else ''}{preposition}"  # woran, wovon
            front = "what", linked if preposition else "was"
        else:
            several, determiner = self.pick(((0, lexicon.WHICH), (1, lexicon.WHICH), (1, lexicon.HOW_MANY)))
            asked = WHO if noun.kind == "person" else self.mention(noun, (determiner,), several)
            front = asked.english, with_preposition(preposition, asked.german[governed_case(verb)])
        return question(front, Clause(subject, conjugate(verb, tense, subject.agreement)))

    def priced(self) -> Pair:
        thing, price = self.topic(self.pick(NOUNS["goods"])), self.numeral(998)
        rest = words((price.english_plural, price.german[0]), ("euros", "Euro"))
        return statement(Clause(thing, conjugate(COST, PRESENT, thing.agreement), rest))

    def reported(self) -> Pair:
        speaker, verb, speech = self.person(), self.pick(SPEECH), self.clause(negative=self.chance(0.2))
        while speech.subject.english == speaker.english:
            speech = self.clause()
        knows = conjugate(verb, PRESENT, speaker.agreement)
        if verb.english == "know" and self.chance(0.5):
            main = Clause(speaker, negated(knows), ("", "nicht"))
            return clauses(statement(main), subordinate(("whether", "ob"), speech))
        return clauses(statement(Clause(speaker, knows)), subordinate(("that", "dass"), speech))

    def reasoned(self) -> Pair:
        """People do things because they are well, or although they are not; and the other way round."""
        person, negative, although = self.person(), self.chance(0.4), self.chance(0.4)
        mood = self.pick(adjectives("person", "good" if negative == although else "bad"))
        reason = self.quality(lexicon.PRONOUNS[person.pronoun], mood)
        action = self.activity(self.pick(TIMELESS), NOTHING, person, negative)
        conjunction = ("although", "obwohl") if although else ("because", "weil")
        return clauses(statement(action), subordinate(conjunction, reason))

    def judged(self) -> Pair:
        """A thing comes up again: an "it" that is he, she or it in German."""
        person, tense, negative = self.person(), self.pick(WISHES), self.chance(0.4)
        thing = self.mention(self.pick(NOUNS["goods"]), KNOWN, adjective=0)
        group = conjugate(BUY, tense, person.agreement)
        rest = words((thing.english, thing.german[ACCUSATIVE]), ("", "nicht" if negative else ""))
        opinion = self.pick(adjectives(thing.kind, "bad" if negative else "good"))
        reason = self.quality(lexicon.PRONOUNS[thing.pronoun], opinion)
        main = Clause(person, negated(group) if negative else group, rest)
        return clauses(statement(main), subordinate(("because", "weil"), reason))

    def conditioned(self) -> Pair:
        person, mood = self.person(), self.pick(("good", "bad"))
        if self.chance(0.3):
            english, german = words(("if", "wenn"), self.pick(WEATHER))
        else:
            english, german = subordinate(
                ("if", "wenn"), self.quality(person, self.pick(adjectives("person", mood)))
            )
            person = lexicon.PRONOUNS[person.pronoun]
        action = self.activity(self.pick(TIMELESS), NOTHING, person, negative=mood == "bad")
        return inverted((f"{english},", f"{german},"), action)

    def pretended(self) -> Pair:
        person, mood = self.person(), self.pick(("good", "bad"))
        main = Clause(person, conjugate(LOOK, PRESENT, person.agreement))
        unreal = self.quality(lexicon.PRONOUNS[person.pronoun], self.pick(adjectives("person", mood)), UNREAL)
        return clauses(statement(main), subordinate(("as if", "als ob"), unreal))

    def sentence(self) -> Pair:
        rule, end = self.pick(CHOICES)
        english, german = rule(self)
        return f"{english[0].upper()}{english[1:]}{end}", f"{german[0].upper()}{german[1:]}{end}"


RULES = [  # how often, what, the last character
    (8, Grammar.told, "."),  # The boy opens the door. / Der Junge macht die Tür auf.
    (4, Grammar.denied, "."),  # I cannot open the door. / Ich kann die Tür nicht aufmachen.
    (4, Grammar.fronted, "."),  # Tomorrow she will help us. / Morgen wird sie uns helfen.
    (2, Grammar.habitual, "."),  # The cat often sleeps in the kitchen. / Die Katze schläft oft in der Küche.
    (3, Grammar.asked, "?"),  # Did you buy the car? / Hast du das Auto gekauft?
    (1, Grammar.asked_why, "?"),  # Why does he help the queen? / Warum hilft er der Königin?
    (1, Grammar.asked_who, "?"),  # Who reads my letter? / Wer liest meinen Brief?
    (3, Grammar.asked_what, "?"),  # Which coat does he wear? / Welchen Mantel trägt er?
    (1, Grammar.priced, "."),  # The lamp costs forty-two euros. / Die Lampe kostet zweiundvierzig Euro.
    (3, Grammar.reported, "."),  # We hope that she will sing. / Wir hoffen, dass sie singen wird.
    (2, Grammar.reasoned, "."),  # I work although I am sick. / Ich arbeite, obwohl ich krank bin.
    (2, Grammar.judged, "."),  # She buys the hat because it is new. / Sie kauft den Hut, weil er neu ist.
    (2, Grammar.conditioned, "."),  # If it rains, he sleeps. / Wenn es regnet, schläft er.
    (1, Grammar.pretended, "."),  # You look as if you were tired. / Du siehst aus, als ob du müde wärst.
]
CHOICES = [(rule, end) for weight, rule, end in RULES for _ in range(weight)]


def fingerprint(english: str) -> int:
    return int.from_bytes(hashlib.blake2b(english.encode(), digest_size=8).digest(), "big")


def split_of(fingerprint: int) -> str:
    """Valid and test have one sentence in twenty each, train the rest."""
    return {0: "valid", 1: "test"}.get(fingerprint % 20, "train")


def demo_pairs(split: str, num_pairs: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yields `num_pairs` different (English, German) pairs of a split: everywhere and always the same ones.

    The first pairs of a long request are those of a short one. Which split a sentence belongs to is decided by its text,
    not by the seed, so that no sentence of the test is ever trained on.
    """
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}. Received: split={split!r}.")
    digest = hashlib.sha256(f"{split} {seed}".encode()).digest()
    return _draw(Grammar(int.from_bytes(digest, "big")), split, num_pairs)


def _draw(grammar: Grammar, split: str, num_pairs: int) -> Iterator[tuple[str, str]]:
    seen = set()  # of fingerprints: the sentences would take ten times the memory
    while len(seen) < num_pairs:
        pair = grammar.sentence()
        key = fingerprint(pair[0])
        if key not in seen and split_of(key) == split:
            seen.add(key)
            yield pair
