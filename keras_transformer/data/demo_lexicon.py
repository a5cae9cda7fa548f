"""The words of the demo corpus and their forms, English and German. The grammar is in `demo.py`.

A table has a word a line; `_` is a blank inside a cell and `-` an empty cell. German forms are written out
where they are more than a regular ending. Tags keep the sentences sensible: one opens a `door` (or a window,
or a box), not a sausage.
"""

from functools import cache
from typing import NamedTuple

# English, plural; gender, nominative, accusative = dative, plural, dative plural; the kind and further tags.
NOUN_TABLE = """
mother      -          f Mutter     Mutter     -          -          person,family
father      -          m Vater      Vater      -          -          person,family
sister      sisters    f Schwester  Schwester  Schwestern Schwestern person,family
brother     brothers   m Bruder     Bruder     Brüder     Brüdern    person,family
uncle       uncles     m Onkel      Onkel      Onkel      Onkeln     person,family
aunt        aunts      f Tante      Tante      Tanten     Tanten     person,family
grandmother -          f Großmutter Großmutter -          -          person,family
friend      friends    m Freund     Freund     Freunde    Freunden   person,family
neighbour   neighbours m Nachbar    Nachbarn   Nachbarn   Nachbarn   person,family
teacher     teachers   m Lehrer     Lehrer     Lehrer     Lehrern    person,family
child       children   n Kind       Kind       Kinder     Kindern    person
man         men        m Mann       Mann       Männer     Männern    person
woman       women      f Frau       Frau       Frauen     Frauen     person
boy         boys       m Junge      Jungen     Jungen     Jungen     person
girl        girls      n Mädchen    Mädchen    Mädchen    Mädchen    person,female
doctor      doctors    m Arzt       Arzt       Ärzte      Ärzten     person
student     students   m Student    Studenten  Studenten  Studenten  person
queen       queens     f Königin    Königin    Königinnen Königinnen person
farmer      farmers    m Bauer      Bauern     Bauern     Bauern     person
policeman   policemen  m Polizist   Polizisten Polizisten Polizisten person
dog         dogs       m Hund       Hund       Hunde      Hunden     animal
cat         cats       f Katze      Katze      Katzen     Katzen     animal
horse       horses     n Pferd      Pferd      Pferde     Pferden    animal
cow         cows       f Kuh        Kuh        Kühe       Kühen      animal
bird        birds      m Vogel      Vogel      Vögel      Vögeln     animal
rabbit      rabbits    n Kaninchen  Kaninchen  Kaninchen  Kaninchen  animal
apple       apples     m Apfel      Apfel      Äpfel      Äpfeln     food
cake        cakes      m Kuchen     Kuchen     Kuchen     Kuchen     food
egg         eggs       n Ei         Ei         Eier       Eiern      food
potato      potatoes   f Kartoffel  Kartoffel  Kartoffeln Kartoffeln food
sausage     sausages   f Wurst      Wurst      Würste     Würsten    food
coffee      -          m Kaffee     Kaffee     -          -          drink
tea         -          m Tee        Tee        -          -          drink
juice       -          m Saft       Saft       -          -          drink
milk        -          f Milch      Milch      -          -          drink
water       -          n Wasser     Wasser     -          -          drink
book        books      n Buch       Buch       Bücher     Büchern    text,written,small,goods
newspaper   newspapers f Zeitung    Zeitung    Zeitungen  Zeitungen  text,small,goods
letter      letters    m Brief      Brief      Briefe     Briefen    text,written,small
poem        poems      n Gedicht    Gedicht    Gedichte   Gedichten  text,written
table       tables     m Tisch      Tisch      Tische     Tischen    thing,goods,furniture
chair       chairs     m Stuhl      Stuhl      Stühle     Stühlen    thing,goods,furniture
lamp        lamps      f Lampe      Lampe      Lampen     Lampen     thing,goods,machine
clock       clocks     f Uhr        Uhr        Uhren      Uhren      thing,goods,machine
picture     pictures   n Bild       Bild       Bilder     Bildern    thing,goods
key         keys       m Schlüssel  Schlüssel  Schlüssel  Schlüsseln thing,goods,small
present     presents   n Geschenk   Geschenk   Geschenke  Geschenken thing,goods,small
ball        balls      m Ball       Ball       Bälle      Bällen     thing,goods,small
box         boxes      f Kiste      Kiste      Kisten     Kisten     thing,goods,door
suitcase    suitcases  m Koffer     Koffer     Koffer     Koffern    thing,goods,door
door        doors      f Tür        Tür        Türen      Türen      thing,door
window      windows    n Fenster    Fenster    Fenster    Fenstern   thing,door
coat        coats      m Mantel     Mantel     Mäntel     Mänteln    clothes,goods
hat         hats       m Hut        Hut        Hüte       Hüten      clothes,goods
jacket      jackets    f Jacke      Jacke      Jacken     Jacken     clothes,goods
shirt       shirts     n Hemd       Hemd       Hemden     Hemden     clothes,goods
car         cars       n Auto       Auto       Autos      Autos      vehicle,goods,machine
bicycle     bicycles   n Fahrrad    Fahrrad    Fahrräder  Fahrrädern vehicle,goods,machine
bus         buses      m Bus        Bus        Busse      Bussen     vehicle,public
train       trains     m Zug        Zug        Züge       Zügen      vehicle,public
garden      gardens    m Garten     Garten     Gärten     Gärten     place,inside
forest      forests    m Wald       Wald       Wälder     Wäldern    place,inside
park        parks      m Park       Park       Parks      Parks      place,inside
kitchen     kitchens   f Küche      Küche      Küchen     Küchen     place,inside
city        cities     f Stadt      Stadt      Städte     Städten    place,inside
school      schools    f Schule     Schule     Schulen    Schulen    place,inside
house       houses     n Haus       Haus       Häuser     Häusern    place,inside
river       rivers     m Fluss      Fluss      Flüsse     Flüssen    place,beside
beach       beaches    m Strand     Strand     Strände    Stränden   place,beside
station     stations   m Bahnhof    Bahnhof    Bahnhöfe   Bahnhöfen  place,beside
bridge      bridges    f Brücke     Brücke     Brücken    Brücken    place,beside
"""

# English; German, what its endings go onto; the kinds of nouns it fits, and whether that is `good` or `bad`.
ADJECTIVE_TABLE = """
old         alt         alt         animal,thing,clothes,vehicle,place
young       jung        jung        animal
big         groß        groß        animal,thing,food,place
small       klein       klein       animal,thing,food,place
strong      stark       stark       person,animal,good
clever      klug        klug        person,animal
friendly    freundlich  freundlich  person,good
rich        reich       reich       person,good
poor        arm         arm         person,bad
brave       mutig       mutig       person,animal,good
happy       glücklich   glücklich   person,good
sad         traurig     traurig     person,bad
tired       müde        müd         person,animal,bad
hungry      hungrig     hungrig     person,animal,bad
sick        krank       krank       person,animal,bad
lazy        faul        faul        person,animal,bad
fast        schnell     schnell     animal,vehicle
new         neu         neu         thing,clothes,vehicle,good
expensive   teuer       teur        thing,clothes,vehicle,food,bad
cheap       billig      billig      thing,clothes,vehicle,food,good
beautiful   schön       schön       thing,clothes,place,good
heavy       schwer      schwer      thing,bad
red         rot         rot         thing,clothes,vehicle
blue        blau        blau        thing,clothes,vehicle
white       weiß        weiß        animal,thing,clothes,vehicle
black       schwarz     schwarz     animal,thing,clothes,vehicle
fresh       frisch      frisch      food,good
good        gut         gut         food,drink,text,good
cold        kalt        kalt        drink
long        lang        lang        text,bad
interesting interessant interessant text,good
boring      langweilig  langweilig  text,bad
"""

# English, third person, past; ich, du, er, wir = sie, separable prefix, perfect; tags; preposition.
# A heading tells what follows the verb; tags tell which nouns, whether animals do it, and what place fits:
# `where` something happens, `whither` one goes, what one sits `on`, and `onto` what things are put.
VERB_TABLES = {
    "none": """
sleep  sleeps  slept   schlafe  schläfst  schläft  schlafen  -   hat_geschlafen   animals,where
work   works   worked  arbeite  arbeitest arbeitet arbeiten  -   hat_gearbeitet   where
sing   sings   sang    singe    singst    singt    singen    -   hat_gesungen     where
dance  dances  danced  tanze    tanzt     tanzt    tanzen    -   hat_getanzt      where
play   plays   played  spiele   spielst   spielt   spielen   -   hat_gespielt     animals,where
swim   swims   swam    schwimme schwimmst schwimmt schwimmen -   ist_geschwommen  animals
get_up gets_up got_up  stehe    stehst    steht    stehen    auf ist_aufgestanden animals
arrive arrives arrived komme    kommst    kommt    kommen    an  ist_angekommen   -
go     goes    went    gehe     gehst     geht     gehen     -   ist_gegangen     animals,whither
run    runs    ran     renne    rennst    rennt    rennen    -   ist_gerannt      animals,whither
sit    sits    sat     sitze    sitzt     sitzt    sitzen    -   hat_gesessen     on
""",
    "acc": """
read     reads     read       lese      liest      liest     lesen      -   hat_gelesen     text,where
write    writes    wrote      schreibe  schreibst  schreibt  schreiben  -   hat_geschrieben written,where
eat      eats      ate        esse      isst       isst      essen      -   hat_gegessen    food,where
drink    drinks    drank      trinke    trinkst    trinkt    trinken    -   hat_getrunken   drink,where
buy      buys      bought     kaufe     kaufst     kauft     kaufen     -   hat_gekauft     goods,food,drink
open     opens     opened     mache     machst     macht     machen     auf hat_aufgemacht  door
close    closes    closed     mache     machst     macht     machen     zu  hat_zugemacht   door
wear     wears     wore       trage     trägst     trägt     tragen     -   hat_getragen    clothes
put_on   puts_on   put_on     ziehe     ziehst     zieht     ziehen     an  hat_angezogen   clothes
look_for looks_for looked_for suche     suchst     sucht     suchen     -   hat_gesucht     goods,creature
find     finds     found      finde     findest    findet    finden     -   hat_gefunden    goods,animal
see      sees      saw        sehe      siehst     sieht     sehen      -   hat_gesehen     goods,creature
hear     hears     heard      höre      hörst      hört      hören      -   hat_gehört      creature
visit    visits    visited    besuche   besuchst   besucht   besuchen   -   hat_besucht     person
call     calls     called     rufe      rufst      ruft      rufen      an  hat_angerufen   person
meet     meets     met        treffe    triffst    trifft    treffen    -   hat_getroffen   person,where
sell     sells     sold       verkaufe  verkaufst  verkauft  verkaufen  -   hat_verkauft    goods
repair   repairs   repaired   repariere reparierst repariert reparieren -   hat_repariert   machine
wash     washes    washed     wasche    wäschst    wäscht    waschen    -   hat_gewaschen   clothes,animal
put      puts      put        lege      legst      legt      legen      -   hat_gelegt      small,onto
""",
    "dat": """
help      helps      helped      helfe hilfst hilft helfen -  hat_geholfen person
thank     thanks     thanked     danke dankst dankt danken -  hat_gedankt  person
listen_to listens_to listened_to höre  hörst  hört  hören  zu hat_zugehört person
follow    follows    followed    folge folgst folgt folgen -  ist_gefolgt  creature
""",
    "preposition": """
wait_for   waits_for   waited_for   warte   wartest  wartet  warten   - hat_gewartet   person,public      auf
think_of   thinks_of   thought_of   denke   denkst   denkt   denken   - hat_gedacht    person,animal      an
talk_about talks_about talked_about spreche sprichst spricht sprechen - hat_gesprochen person,animal,text über
dream_of   dreams_of   dreamed_of   träume  träumst  träumt  träumen  - hat_geträumt   animal,goods       von
talk_to    talks_to    talked_to    spreche sprichst spricht sprechen - hat_gesprochen person,where       mit
play_with  plays_with  played_with  spiele  spielst  spielt  spielen  - hat_gespielt   animal,animals     mit
""",
    "give": """
give  gives  gave    gebe    gibst    gibt    geben    - hat_gegeben   small,clothes,food
show  shows  showed  zeige   zeigst   zeigt   zeigen   - hat_gezeigt   goods,animal,text
bring brings brought bringe  bringst  bringt  bringen  - hat_gebracht  small,food,drink
send  sends  sent    schicke schickst schickt schicken - hat_geschickt small
""",
    "speech": """
say     says     said     sage   sagst   sagt   sagen   - hat_gesagt   -
think   thinks   thought  denke  denkst  denkt  denken  - hat_gedacht  -
believe believes believed glaube glaubst glaubt glauben - hat_geglaubt -
know    knows    knew     weiß   weißt   weiß   wissen  - hat_gewusst  -
hear    hears    heard    höre   hörst   hört   hören   - hat_gehört   -
""",
    "single": """
look looks looked sehe  siehst  sieht  sehen  aus hat_ausgesehen -
cost costs cost   koste kostest kostet kosten -   hat_gekostet   -
""",
}

# English, third person; auxiliary of a question, third person, what stays behind; ich, du, er, wir = sie.
MODAL_TABLE = """
can           can           can    can    -       kann   kannst   kann   können
will          will          will   will   -       werde  wirst    wird   werden
should        should        should should -       sollte solltest sollte sollten
want_to       wants_to      do     does   want_to will   willst   will   wollen
have_to       has_to        do     does   have_to muss   musst    muss   müssen
would_like_to would_like_to would  would  like_to möchte möchtest möchte möchten
"""

# Subject, object; by case; possessives. A girl is "she", but das Mädchen is a neuter: she-n.
PRONOUN_TABLE = """
I     I    me   ich mich mir   my    mein
you   you  you  du  dich dir   your  dein
he    he   him  er  ihn  ihm   his   sein
she   she  her  sie sie  ihr   her   ihr
she-n she  her  es  es   ihm   her   sein
it-m  it   it   er  ihn  ihm   its   sein
it-f  it   it   sie sie  ihr   its   ihr
it-n  it   it   es  es   ihm   its   sein
we    we   us   wir uns  uns   our   unser
they  they them sie sie  ihnen their ihr
"""

# Masculine, feminine, neuter and plural, each in three cases. The last three are endings of adjectives:
# strong, behind nothing (and of dieser and welcher); weak, behind der; mixed, behind ein.
DECLENSION_TABLE = """
der den dem die die der das das dem die die den
-   en  em  e   e   er  -   -   em  e   e   en
er  en  em  e   e   er  es  es  em  e   e   en
e   en  en  e   e   en  e   e   en  en  en  en
er  en  en  e   e   en  es  es  en  en  en  en
"""

NUMERAL_TABLE = """
zero one two three four five six seven eight nine ten eleven twelve
thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety
null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig
"""

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
FIRST, SECOND, THIRD, MANY = range(4)  # what verbs agree with: ich, du, er/sie/es, wir/sie (which look alike)
PRESENT, PAST, UNREAL = "present", "past", "unreal"  # a tense is one of these or one of the MODALS


class Noun(NamedTuple):
    english: str
    english_plural: str  # empty if it has none
    gender: str
    singular: tuple[str, str, str]  # by case
    plural: tuple[str, str, str]
    kind: str
    tags: frozenset[str]


class Adjective(NamedTuple):
    english: str
    german: str
    stem: str
    tags: frozenset[str]


class Verb(NamedTuple):
    english: str
    english_third: str
    english_past: str
    finite: tuple[str, str, str, str]  # by agreement, without the prefix
    prefix: str
    auxiliary: str  # of the perfect: hat or ist
    participle: str
    tags: frozenset[str]
    frame: str
    preposition: str = ""


class Determiner(NamedTuple):
    english: str
    english_plural: str
    german: list[str]  # like a row of DECLENSION_TABLE
    endings: list[str]  # of an adjective behind it


class Phrase(NamedTuple):
    """Somebody or something, in all cases."""

    english: str
    english_object: str
    german: tuple[str, str, str]
    agreement: int
    kind: str  # of its noun; or name, pronoun, who
    pronoun: str  # what it is called when it comes up again: a key of PRONOUNS and of POSSESSIVES

    @property
    def nominative(self) -> tuple[str, str]:
        return self.english, self.german[NOMINATIVE]


class VerbGroup(NamedTuple):
    """A conjugated verb, taken apart into all that may go to different places."""

    plain: str  # opened
    auxiliary: str  # did, before the subject of a question
    rest: str  # open, behind it
    finite: str  # hat, the second word of a main clause
    end: str  # aufgemacht, its last word
    final: str  # aufgemacht hat, the last words of a subordinate clause


def read_table(table: str) -> list[list[str]]:
    """`"a b_c -"` -> `[["a", "b c", ""]]`, a list a line."""
    lines = table.strip().split("\n")
    return [["" if cell == "-" else cell.replace("_", " ") for cell in line.split()] for line in lines]


def read_noun(row: list[str]) -> Noun:
    english, english_plural, gender, nominative, oblique, plural, dative_plural, tags = row
    kind, *tags = tags.split(",")
    tags = frozenset([kind, *tags, "creature" if kind in ("person", "animal") else kind])
    singular, plural = (nominative, oblique, oblique), (plural, plural, dative_plural)
    return Noun(english, english_plural, gender, singular, plural, kind, tags)


def read_verb(row: list[str], frame: str) -> Verb:
    *english, ich, du, er, wir, prefix, perfect, tags = row[:10]
    finite, tags = (ich, du, er, wir), frozenset(tags.split(","))
    return Verb(*english, finite, prefix, *perfect.split(), tags, frame, *row[10:])


NOUNS = [read_noun(row) for row in read_table(NOUN_TABLE)]
ADJECTIVES = [Adjective(*row[:3], frozenset(row[3].split(","))) for row in read_table(ADJECTIVE_TABLE)]
VERBS = {frame: [read_verb(row, frame) for row in read_table(table)] for frame, table in VERB_TABLES.items()}
MODALS = [(*row[:5], tuple(row[5:])) for row in read_table(MODAL_TABLE)]
BE = {  # by agreement
    PRESENT: (("am", "are", "is", "are"), ("bin", "bist", "ist", "sind")),
    PAST: (("was", "were", "was", "were"), ("war", "warst", "war", "waren")),
    UNREAL: (("were", "were", "were", "were"), ("wäre", "wärst", "wäre", "wären")),
}
PERFECT = {"hat": ("habe", "hast", "hat", "haben"), "ist": BE[PRESENT][1]}

DER, EIN, STRONG, WEAK, MIXED = read_table(DECLENSION_TABLE)


def inflect(stem: str, endings: list[str]) -> list[str]:
    return [stem + ending for ending in endings]


THE = Determiner("the", "the", DER, WEAK)
THIS = Determiner("this", "these", inflect("dies", STRONG), WEAK)
WHICH = Determiner("which", "which", inflect("welch", STRONG), WEAK)
A = Determiner("a", "", [*inflect("ein", EIN[:9]), "", "", ""], MIXED[:9] + STRONG[9:])
NO = Determiner("a", "", inflect("kein", EIN), MIXED)  # "does not buy a car" is kauft kein Auto
MASS = Determiner("", "", [""] * 12, STRONG)
NO_MASS = Determiner("", "", NO.german, MIXED)
HOW_MANY = Determiner("", "how many", ["wie viele", "wie viele", "wie vielen"] * 4, STRONG)

AGREEMENTS = {"I": FIRST, "you": SECOND, "we": MANY, "they": MANY}
PRONOUNS = {
    key: Phrase(english, english_object, tuple(german), AGREEMENTS.get(key, THIRD), "pronoun", key)
    for key, english, english_object, *german, _, _ in read_table(PRONOUN_TABLE)
}
POSSESSIVES = {
    owner: Determiner(english, english, inflect(stem, EIN), MIXED)  # unser has the endings of ein
    for owner, *_, english, stem in read_table(PRONOUN_TABLE)
}


def pronoun_of(noun: Noun) -> str:
    if noun.kind == "person":
        return {"m": "he", "f": "she", "n": "she-n" if "female" in noun.tags else "it-n"}[noun.gender]
    return f"it-{noun.gender}"


def noun_phrase(noun: Noun, determiner: Determiner, plural: bool, adjective: Adjective | None) -> Phrase:
    column = 9 if plural else 3 * "mfn".index(noun.gender)
    article = determiner.english_plural if plural else determiner.english
    english = noun.english_plural if plural else noun.english
    german = noun.plural if plural else noun.singular
    if adjective:
        english = f"{adjective.english} {english}"
        german = [f"{adjective.stem}{determiner.endings[column + case]} {german[case]}" for case in range(3)]
    if article:
        english = f"an {english}" if article == "a" and english[0] in "aeiou" else f"{article} {english}"
    if determiner.german[column]:
        german = [f"{determiner.german[column + case]} {german[case]}" for case in range(3)]
    agreement, pronoun = (MANY, "they") if plural else (THIRD, pronoun_of(noun))
    return Phrase(english, english, tuple(german), agreement, noun.kind, pronoun)


@cache
def be(tense: str, agreement: int) -> VerbGroup:
    english, german = (forms[agreement] for forms in BE[tense])
    return VerbGroup(english, english, "", german, "", german)


@cache
def conjugate(verb: Verb, tense: str | tuple, agreement: int) -> VerbGroup:
    base, third = verb.english, agreement == THIRD
    if tense == PRESENT:
        plain, auxiliary = (verb.english_third, "does") if third else (base, "do")
        finite = verb.finite[agreement]
        return VerbGroup(plain, auxiliary, base, finite, verb.prefix, verb.prefix + finite)
    if tense == PAST:  # in German the perfect
        finite, end = PERFECT[verb.auxiliary][agreement], verb.participle
        return VerbGroup(verb.english_past, "did", base, finite, end, f"{end} {finite}")
    plain, plain_third, auxiliary, auxiliary_third, rest, forms = tense
    if third:
        plain, auxiliary = plain_third, auxiliary_third
    plain, rest = f"{plain} {base}", f"{rest} {base}".strip()
    finite, infinitive = forms[agreement], verb.prefix + verb.finite[MANY]
    return VerbGroup(plain, auxiliary, rest, finite, infinitive, f"{infinitive} {finite}")


small, teens, tens, *_ = read_table(NUMERAL_TABLE)
ENGLISH = [*small, *teens, *(ten if one == "zero" else f"{ten}-{one}" for ten in tens for one in small[:10])]
*_, small, teens, tens = read_table(NUMERAL_TABLE)
GERMAN = [*small, *teens, *(ten if one == "null" else f"{one}und{ten}" for ten in tens for one in small[:10])]


def english_number(number: int) -> str:
    """0 to 999: `345` is `"three hundred and forty-five"`."""
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return ENGLISH[rest]
    return f"{ENGLISH[hundreds]} hundred" + (f" and {ENGLISH[rest]}" if rest else "")


def german_number(number: int) -> str:
    """0 to 999: `345` is `"dreihundertfünfundvierzig"`."""
    hundreds, rest = divmod(number, 100)
    last = "eins" if rest == 1 else GERMAN[rest]
    return f"{GERMAN[hundreds]}hundert{last if rest else ''}" if hundreds else last
