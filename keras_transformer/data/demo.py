"""The built-in corpus: a small synchronous grammar that writes sentences in English and German at once.

The words are in `demo_lexicon.py`. A rule of the grammar draws words and builds a `Clause`: all that is said,
in both languages, but in no order yet. Four functions put it in order, and there the languages part ways:

    subject        verb               rest         front
    the boy        PAST open          the door     yesterday
    der Junge      PAST auf|machen    die Tür      gestern

    statement      The boy opened the door yesterday.      Der Junge hat gestern die Tür aufgemacht.
    inverted       Yesterday the boy opened the door.      Gestern hat der Junge die Tür aufgemacht.
    question       Did the boy open the door?              Hat der Junge die Tür aufgemacht?
    subordinate    ... that the boy opened the door ...    ..., dass der Junge die Tür aufgemacht hat ...

Translation is a function in both directions. Where one language leaves open what the other has to decide, the
grammar keeps away: "you" is always du, "them" is no object (it would be sie, like "her"), and a statement in
the past always comes with its time ("I read the book" does not tell).
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from keras_transformer.data import demo_lexicon as lexicon
from keras_transformer.data.demo_lexicon import (
    Adjective,
    Determiner,
    Noun,
    Phrase,
    Verb,
    VerbGroup,
    be,
    conjugate,
)
from keras_transformer.data.digests import text_digest

SPLITS = ("train", "valid", "test")
Pair = tuple[str, str]  # English, German
Tense = str | tuple  # PRESENT, PAST, UNREAL or one of the modal verbs
NOTHING = ("", "")


class Clause(NamedTuple):
    subject: Phrase
    verb: VerbGroup
    rest: Pair = NOTHING


def words(*pairs: Pair) -> Pair:
    """Joins the English sides and the German sides. An empty string leaves no blank."""
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
    opening = front, (verb.auxiliary, verb.finite), subject.nominative
    return words(*opening, (verb.rest, ""), rest, ("", verb.end))


def subordinate(front: Pair, clause: Clause) -> Pair:
    subject, verb, rest = clause
    return words(front, subject.nominative, (verb.plain, ""), rest, ("", verb.final))


def clauses(first: Pair, second: Pair) -> Pair:
    """Joins two clauses. German sets a comma between them; English sets none between such clauses."""
    return f"{first[0]} {second[0]}", f"{first[1]}, {second[1]}"


def negated(verb: VerbGroup) -> VerbGroup:
    """Negates the English verb. The German nicht or kein stands among the rest of the clause."""
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
MELTED = phrase_book("in dem = im, in das = ins, an dem = am, zu dem = zum, zu der = zur, von dem = vom")

NAMES = [
    Phrase(name, name, (name, name, name), lexicon.THIRD, "name", "she" if name[-1] == "a" else "he")
    for name in ("Anna", "Maria", "Emma", "Lisa", "Peter", "Paul", "Max", "Tom")
]
WHO = Phrase("who", "who", ("wer", "wen", "wem"), lexicon.THIRD, "who", "he")
WHAT = {"": "was", "an": "woran", "auf": "worauf", "über": "worüber", "mit": "womit", "von": "wovon"}
PERSONAL = ("I", "you", "he", "she", "we", "they")
THE, MY = lexicon.THE, lexicon.POSSESSIVES["I"]
KNOWN = [THE, THE, lexicon.THIS]
OWNED = [lexicon.POSSESSIVES[owner] for owner in PERSONAL if owner != "they"]  # their is ihr, like her
PRESENT, PAST, UNREAL = lexicon.PRESENT, lexicon.PAST, lexicon.UNREAL
TIMELESS = [PRESENT] * 6 + lexicon.MODALS
TENSES = [PAST] * 4 + TIMELESS
WISHES = [PRESENT] * 2 + [modal for modal in lexicon.MODALS if modal[0] in ("want to", "would like to")]

TAGS = {tag for word in (*lexicon.NOUNS, *lexicon.ADJECTIVES) for tag in word.tags}
NOUNS = {tag: [noun for noun in lexicon.NOUNS if tag in noun.tags] for tag in TAGS}
ADJECTIVES = {tag: [adjective for adjective in lexicon.ADJECTIVES if tag in adjective.tags] for tag in TAGS}
(LOOK, COST), SPEECH = lexicon.VERBS["single"], lexicon.VERBS["speech"]
FRAMES = ("none", "acc", "dat", "preposition", "give")
ACTIVITIES = [verb for frame in FRAMES for verb in lexicon.VERBS[frame]]
OBJECTS = {verb: [noun for noun in lexicon.NOUNS if verb.tags & noun.tags] for verb in ACTIVITIES}
ASKABLE = [verb for frame in FRAMES[1:4] for verb in lexicon.VERBS[frame] if "onto" not in verb.tags]
PRICED = ("clothes", "furniture", "machine")
BUY = next(verb for verb in ACTIVITIES if verb.english == "buy")


def with_preposition(preposition: str, german: str) -> str:
    text = f"{preposition} {german}".strip()
    for separate, melted in MELTED:
        if text.startswith(f"{separate} "):
            return melted + text.removeprefix(separate)
    return text


def governed(verb: Verb, phrase: Phrase) -> str:
    dative = verb.frame == "dat" or verb.preposition in ("mit", "von")
    return with_preposition(verb.preposition, phrase.german[lexicon.DATIVE if dative else lexicon.ACCUSATIVE])


class Grammar:
    """Draws phrases, then clauses, then sentences."""

    def __init__(self, seed: int):
        self.random = Random(seed).random  # the only method of Random whose numbers Python promises to keep

    def pick(self, options: Sequence):
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    # ---- Phrases: who and what, where and when.

    def mention(self, noun: Noun, determiners: Sequence[Determiner], plural=0.25, adjective=0.25) -> Phrase:
        several = noun.english_plural != "" and self.chance(plural)
        attribute = self.pick(ADJECTIVES[noun.kind]) if self.chance(adjective) else None
        return lexicon.noun_phrase(noun, self.pick(determiners), several, attribute)

    def topic(self, noun: Noun, adjective: float = 0.25) -> Phrase:
        """Something definite, to begin a sentence with."""
        determiners = KNOWN if noun.kind in ("person", "place") else KNOWN + OWNED
        return self.mention(noun, OWNED if "family" in noun.tags else determiners, adjective=adjective)

    def person(self) -> Phrase:
        choice = self.random()
        if choice < 0.3:
            return lexicon.PRONOUNS[self.pick(PERSONAL)]
        return self.pick(NAMES) if choice < 0.45 else self.topic(self.pick(NOUNS["person"]))

    def someone_else(self, subject: Phrase) -> Phrase:
        """A name or pronoun for somebody else. Not they, since them and her are both sie; and I do not meet us."""
        if self.chance(0.4):
            return self.pick([name for name in NAMES if name is not subject])
        taken = ("they", "I", "we") if subject.pronoun in ("I", "we") else ("they", subject.pronoun)
        return lexicon.PRONOUNS[self.pick([key for key in PERSONAL if key not in taken])]

    def object(self, nouns: Sequence[Noun], subject: Phrase, negative=False, definite=False) -> Phrase:
        noun, own = self.pick(nouns), MY if subject.kind == "animal" else lexicon.POSSESSIVES[subject.pronoun]
        while noun.english in subject.english:  # nobody helps himself
            noun = self.pick(nouns)
        if noun.kind == "person" and self.chance(0.35):
            return self.someone_else(subject)
        if "family" in noun.tags:
            return self.mention(noun, [own, own, MY])
        if definite:
            return self.mention(noun, KNOWN)
        if noun.kind == "drink":
            return self.mention(noun, [THE, lexicon.NO_MASS if negative else lexicon.MASS])
        indefinite = lexicon.NO if negative else lexicon.A
        if noun.kind == "clothes":  # a coat each
            return self.mention(noun, [THE, own, indefinite], plural=float(subject.agreement == lexicon.MANY))
        if noun.kind != "person" and not negative and self.chance(0.05):
            return self.mention(noun, [self.numeral(12)], plural=1)
        return self.mention(noun, [*KNOWN, indefinite, indefinite, THE if noun.kind == "person" else own])

    def numeral(self, limit: int) -> Determiner:
        number = 2 + int(self.random() * self.random() * (limit - 1))  # mostly small
        german = lexicon.german_number(number)
        return Determiner("", lexicon.english_number(number), [german] * 12, lexicon.STRONG)

    def place(self, verb: Verb) -> Pair:
        """Where something is, in the dative; or where to, in the accusative."""
        if "on" in verb.tags:
            return self.at(self.pick(NOUNS["furniture"]), *self.pick(SPOTS[1:]), lexicon.DATIVE)
        if "onto" in verb.tags:
            return self.at(self.pick(NOUNS["furniture"]), *self.pick(SPOTS), lexicon.ACCUSATIVE)
        noun = self.pick(NOUNS["place"])
        if "whither" in verb.tags and "inside" in noun.tags:
            return self.at(noun, "into", "in", lexicon.ACCUSATIVE)
        if "whither" in verb.tags:
            return self.at(noun, "to", "zu", lexicon.DATIVE)
        if "where" in verb.tags and self.chance(0.25):
            return self.at(noun, *(("in", "in") if "inside" in noun.tags else ("at", "an")), lexicon.DATIVE)
        return NOTHING

    def at(self, noun: Noun, english: str, german: str, case: int) -> Pair:
        phrase = self.mention(noun, KNOWN, plural=0.05)
        return f"{english} {phrase.english}", with_preposition(german, phrase.german[case])

    def time(self, tense: Tense) -> Pair:
        return self.pick({PRESENT: NOW, PAST: BEFORE}.get(tense, LATER))

    # ---- Clauses.

    def complement(self, verb: Verb, subject: Phrase, negative: bool) -> tuple[Pair, Pair]:
        """What follows the verb. A German pronoun or name comes apart: it goes ahead of the time."""
        nicht, place = ("", "nicht" if negative else ""), self.place(verb)
        if not OBJECTS[verb]:
            return NOTHING, words(nicht, place)
        nouns = NOUNS["creature"] if subject.kind == "animal" else OBJECTS[verb]
        thing = self.object(nouns, subject, negative, definite=negative and verb.frame != "acc")
        english, german = thing.english_object, governed(verb, thing)
        if verb.preposition:
            return NOTHING, words(nicht, (english, german), place)
        if german.startswith("kein"):
            nicht = NOTHING
        if verb.frame == "give":
            receiver = self.object(NOUNS["person"], subject, definite=True)
            first = "", receiver.german[lexicon.DATIVE]
            second = f"{english} to {receiver.english_object}", german
        else:
            receiver, first, second = thing, ("", german), (english, "")
        if receiver.kind in ("pronoun", "name"):
            return first, words(second, nicht, place)
        return NOTHING, words(first, second, nicht, place)

    def activity(self, tense: Tense = "", time=None, subject=None, negative: bool = False) -> Clause:
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

    def quality(self, subject: Phrase, adjective: Adjective, tense=PRESENT, negative=False) -> Clause:
        group, nicht = be(tense, subject.agreement), "nicht" if negative else ""
        rest = words(("", nicht), (adjective.english, adjective.german))
        return Clause(subject, negated(group) if negative else group, rest)

    def clause(self, negative: bool = False) -> Clause:
        if self.chance(0.8):
            return self.activity(negative=negative)
        noun = self.pick(lexicon.NOUNS)
        subject = self.person() if noun.kind == "person" else self.topic(noun, adjective=0)
        return self.quality(subject, self.pick(ADJECTIVES[noun.kind]), self.pick((PRESENT, PAST)), negative)

    def judgement(self, phrase: Phrase, mood: str, tense: str = PRESENT) -> Clause:
        """Something `good` or `bad` about what was mentioned before: "it" is he, she or it in German."""
        kind = phrase.kind if phrase.kind in ADJECTIVES else "person"
        adjectives = [adjective for adjective in ADJECTIVES[kind] if mood in adjective.tags]
        return self.quality(lexicon.PRONOUNS[phrase.pronoun], self.pick(adjectives), tense)

    # ---- Sentences: RULES shows an example of each.

    def told(self) -> Pair:
        return statement(self.clause(negative=self.chance(0.3)))

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
        noun = self.pick(OBJECTS[verb])
        if noun.kind == "person":
            front = "who", governed(verb, WHO)
        elif noun.english_plural and self.chance(0.7):
            several, determiner = self.pick(((0, lexicon.WHICH), (1, lexicon.WHICH), (1, lexicon.HOW_MANY)))
            phrase = self.mention(noun, [determiner], several)
            front = phrase.english, governed(verb, phrase)
        else:
            front = "what", WHAT[verb.preposition]
        return question(front, Clause(subject, conjugate(verb, tense, subject.agreement)))

    def priced(self) -> Pair:
        thing, price = self.topic(self.pick(NOUNS[self.pick(PRICED)])), self.numeral(998)
        rest = words((price.english_plural, price.german[0]), ("euros", "Euro"))
        return statement(Clause(thing, conjugate(COST, PRESENT, thing.agreement), rest))

    def reported(self) -> Pair:
        speaker, verb = self.person(), self.pick(SPEECH)
        unsure = verb.english == "know" and self.chance(0.5)
        speech = self.clause(negative=not unsure and self.chance(0.2))
        while speech.subject.english == speaker.english:
            speech = self.clause()
        group = conjugate(verb, PRESENT, speaker.agreement)
        if unsure:
            main = statement(Clause(speaker, negated(group), ("", "nicht")))
            return clauses(main, subordinate(("whether", "ob"), speech))
        return clauses(statement(Clause(speaker, group)), subordinate(("that", "dass"), speech))

    def reasoned(self) -> Pair:
        """People do things because they are well, or although they are not; and the other way round."""
        person, negative, although = self.person(), self.chance(0.4), self.chance(0.4)
        action = self.activity(self.pick(TIMELESS), NOTHING, person, negative)
        reason = self.judgement(person, "good" if negative == although else "bad")
        conjunction = ("although", "obwohl") if although else ("because", "weil")
        return clauses(statement(action), subordinate(conjunction, reason))

    def bought(self) -> Pair:
        person, negative = self.person(), self.chance(0.4)
        thing = self.mention(self.pick(NOUNS["goods"]), KNOWN, adjective=0)
        group, nicht = conjugate(BUY, self.pick(WISHES), person.agreement), ("", "nicht" if negative else "")
        rest = words((thing.english, thing.german[lexicon.ACCUSATIVE]), nicht)
        main = statement(Clause(person, negated(group) if negative else group, rest))
        reason = self.judgement(thing, "bad" if negative else "good")
        return clauses(main, subordinate(("because", "weil"), reason))

    def conditioned(self) -> Pair:
        person, mood = self.person(), self.pick(("good", "bad"))
        if self.chance(0.3):
            subject, front = person, words(("if", "wenn"), self.pick(WEATHER))
        else:
            subject, condition = lexicon.PRONOUNS[person.pronoun], self.judgement(person, mood)
            front = subordinate(("if", "wenn"), condition._replace(subject=person))
        action = self.activity(self.pick(TIMELESS), NOTHING, subject, negative=mood == "bad")
        return inverted((f"{front[0]},", f"{front[1]},"), action)

    def pretended(self) -> Pair:
        person = self.person()
        appearance = self.judgement(person, self.pick(("good", "bad")), UNREAL)
        main = Clause(person, conjugate(LOOK, PRESENT, person.agreement))
        return clauses(statement(main), subordinate(("as if", "als ob"), appearance))

    def sentence(self) -> Pair:
        rule, end = self.pick(CHOICES)
        english, german = rule(self)
        return f"{english[0].upper()}{english[1:]}{end}", f"{german[0].upper()}{german[1:]}{end}"


RULES = [  # how often, what, the last character
    (11, Grammar.told, "."),  # I cannot open the door. / Ich kann die Tür nicht aufmachen.
    (4, Grammar.fronted, "."),  # Tomorrow she will help us. / Morgen wird sie uns helfen.
    (2, Grammar.habitual, "."),  # The cat often sleeps in the kitchen. / Die Katze schläft oft in der Küche.
    (4, Grammar.asked, "?"),  # Did you buy the car yesterday? / Hast du gestern das Auto gekauft?
    (1, Grammar.asked_why, "?"),  # Why does he help the queen? / Warum hilft er der Königin?
    (1, Grammar.asked_who, "?"),  # Who reads my letter? / Wer liest meinen Brief?
    (3, Grammar.asked_what, "?"),  # Which coat does he wear? / Welchen Mantel trägt er?
    (1, Grammar.priced, "."),  # The lamp costs forty-two euros. / Die Lampe kostet zweiundvierzig Euro.
    (3, Grammar.reported, "."),  # We believe that she will sing. / Wir glauben, dass sie singen wird.
    (2, Grammar.reasoned, "."),  # I work although I am sick. / Ich arbeite, obwohl ich krank bin.
    (2, Grammar.bought, "."),  # She buys the hat because it is new. / Sie kauft den Hut, weil er neu ist.
    (2, Grammar.conditioned, "."),  # If it rains, he sleeps. / Wenn es regnet, schläft er.
    (1, Grammar.pretended, "."),  # You look as if you were tired. / Du siehst aus, als ob du müde wärst.
]
CHOICES = [(rule, end) for weight, rule, end in RULES for _ in range(weight)]


def demo_pairs(split: str, num_pairs: int, seed: int = 0) -> Iterator[Pair]:
    """Yields `num_pairs` different (English, German) pairs of a split: everywhere and always the same ones.

    The first pairs of a long request are those of a short one. The text of a sentence decides which split it
    belongs to, whatever the seed, so that no sentence of the test is ever trained on: valid and test have one
    sentence in twenty each. The supply: three million draws made 2.2 million different sentences, which puts
    their number at 20 million or more (Chao's estimate, a lower bound).
    """
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}. Received: split={split!r}.")
    return draw_pairs(split, num_pairs, seed)


def draw_pairs(split: str, num_pairs: int, seed: int) -> Iterator[Pair]:
    grammar = Grammar(text_digest(f"{split} {seed}"))
    seen = set()  # digests: the sentences would take ten times the memory
    while len(seen) < num_pairs:
        pair = grammar.sentence()
        key = text_digest(pair[0])
        if key not in seen and {0: "valid", 1: "test"}.get(key % 20, "train") == split:
            seen.add(key)
            yield pair
