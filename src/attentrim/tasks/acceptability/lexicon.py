"""The words. An entry is a tuple of forms; a frame asks for them by their position.

Left out on purpose, because they would make a bad sentence good: collective and mass nouns, nouns for which he and she
both serve (actor, waiter), verbs whose past is their base form (read, put), and, as verbs that need an object, those
that do without one or then mean each other (help, visit, meet).
"""

from __future__ import annotations

Entry = tuple[str, ...]


def _single(phrases: str) -> tuple[Entry, ...]:
    return tuple((phrase,) for phrase in phrases.split(", "))


def _with_s(words: str) -> tuple[Entry, ...]:
    return tuple((word, word + "s") for word in words.split(", "))


def _past(verb: str) -> str:
    return verb.removesuffix("e") + "ed"


def _verbs(words: str) -> tuple[Entry, ...]:
    return tuple((verb, _past(verb)) for verb in words.split(", "))


def _chores(phrases: str) -> tuple[Entry, ...]:
    chores = (phrase.split() for phrase in phrases.split(", "))
    return tuple((verb, _past(verb), f"the {thing}") for verb, thing in chores)


# What a sentence is about: these words decide its split.
CONTENT: dict[str, tuple[Entry, ...]] = {
    # One, several; of either sex.
    "person": _with_s(
        "doctor, nurse, teacher, student, lawyer, pilot, farmer, baker, singer, dancer, writer, soldier, sailor, "
        "scientist, tourist, manager, engineer, reporter"
    ),
    # He, they, she, they.
    "gendered": (
        ("king", "kings", "queen", "queens"),
        ("prince", "princes", "princess", "princesses"),
        ("boy", "boys", "girl", "girls"),
        ("man", "men", "woman", "women"),
        ("duke", "dukes", "duchess", "duchesses"),
        ("monk", "monks", "nun", "nuns"),
        ("gentleman", "gentlemen", "lady", "ladies"),
        ("emperor", "emperors", "empress", "empresses"),
        ("uncle", "uncles", "aunt", "aunts"),
        ("father", "fathers", "mother", "mothers"),
        ("brother", "brothers", "sister", "sisters"),
        ("grandfather", "grandfathers", "grandmother", "grandmothers"),
        ("nephew", "nephews", "niece", "nieces"),
        ("policeman", "policemen", "policewoman", "policewomen"),
    ),
    "thing": _with_s(
        "lamp, chair, jacket, carpet, mirror, bottle, camera, guitar, clock, hat, umbrella, candle, necklace, statue, "
        "poster, vase, pillow, radio, teapot, bracelet"
    ),
    "trait": _single(
        "nervous, polite, famous, honest, careful, patient, generous, curious, cheerful, helpful, stubborn, serious, "
        "modest, popular, creative, ambitious, cautious, talkative"
    ),
    "look": _single("expensive, old, small, heavy, beautiful, cheap, ugly, strange, modern, dusty"),
    # Base, past and participle. They need an object, and it may be the subject itself.
    "treat": _verbs(
        "admire, blame, praise, protect, describe, mention, thank, introduce, reward, insult, recognize, rescue, "
        "comfort, contradict, trust, respect, annoy, frighten"
    ),
    # They need none.
    "act": _single("swim, sing, dance, ski, drive, paint, skate, juggle, whistle, sew, cook, draw, climb, jog"),
    # Participles that "at all" can follow.
    "rest": _single("slept, eaten, laughed, complained, smiled, improved, practiced, worked, talked, changed"),
    # Base, past and participle, what it is done to.
    "chore": _chores(
        "clean kitchen, repair roof, wash car, pack suitcase, water roses, open window, finish report, visit museum, "
        "answer letter, lock door, fix bicycle, sign contract, borrow ladder, fold blanket, order pizza, close gate, "
        "bake cake, move piano"
    ),
    "get": _single("bought, sold, carried, stole, dropped, wrapped"),
}

# What holds a sentence together.
FUNCTION: dict[str, tuple[Entry, ...]] = {
    "be": (("is", "are"), ("was", "were")),
    "near": _single("near, behind, beside"),
    "know": _single("knew, remembered, discovered, revealed, forgot"),
    "say": _single("said, believed, knew, thought"),
    "daily": _single("every morning, every day, in the evening, after lunch, on Sundays, every weekend"),
    # Not "this morning": one can blame or mention that.
    "then": _single("on Monday, at noon, after lunch, before the meeting, during the concert"),
    # Not "the king": one can seem more honest as the king.
    "others": _single("anyone else, everyone else, most people, ever"),
    # A gap, or what fills it.
    "gap": (("", "him"), ("", "them"), ("", "us"), ("", "you")),
}

LEXICON = CONTENT | FUNCTION

# A form's entry, by its first form: one for all that an entry holds, so that its versions stay in one split.
LEMMAS: dict[str, str] = {
    word: entry[0] for entries in CONTENT.values() for entry in entries for form in entry for word in form.split()
}
del LEMMAS["the"]
