"""A frame is a sentence with slots, and stands for four sentences that no count of words tells apart.

    <...>  the first factor: a word the judgement hangs on
    [...]  the second factor: the word that must suit it
    {...}  drawn at random

Both factors have two values. Where they are the same the sentence is good, where they differ it is bad, so every word
stands as often in the good sentences of a frame as in the bad ones. So does every two neighbouring words, unless the
words of the two factors are neighbours.

A slot holds either alternatives ("is|are", where one may be empty) or the name of a table of the lexicon. A name may
end in a digit, to draw more than one entry of a table, and may choose forms of it: "<gendered:02>" is <king|queen>,
"{treat:1}" is "admired" or another past, "{person2}" a second person, one or several.
"""

from __future__ import annotations

import random
import re

from .lexicon import LEXICON, Entry

_SLOT = re.compile(r"([<\[{])([^>\]}]*)[>\]}]")
_WORD = re.compile(r"[a-z']+|[.,?]")


def words(text: str) -> list[str]:
    """The words and punctuation marks of a sentence, in lower case."""
    return _WORD.findall(text.lower())


def fill(frame: str, rng: random.Random) -> tuple[tuple[str, str], tuple[str, str]]:
    """Two (good, bad) pairs: the four sentences of a frame, with the words drawn once for all of them."""
    drawn: dict[str, Entry] = {}
    chosen: list[tuple[str, str]] = []
    for kind, inside in _SLOT.findall(frame):
        forms = _forms(inside, drawn, rng)
        chosen.append((rng.choice(forms),) * 2 if kind == "{" else (forms[0], forms[1]))

    def sentence(first: int, second: int) -> str:
        forms = iter(chosen)
        value = {"<": first, "[": second, "{": 0}
        text = " ".join(_SLOT.sub(lambda slot: next(forms)[value[slot[1]]], frame).split())
        text = re.sub(r" (?=[.,?])", "", text)
        return text[0].upper() + text[1:]

    return (sentence(0, 0), sentence(0, 1)), (sentence(1, 1), sentence(1, 0))


def vocabulary(frame: str) -> set[str]:
    """Every word and mark that the frame can hold."""
    text = _SLOT.sub(" ", frame)
    for _, inside in _SLOT.findall(frame):
        name, forms = _name(inside)
        entries = LEXICON.get(name, (tuple(inside.split("|")),))
        text += " " + " ".join(entry[form] for entry in entries for form in forms or range(len(entry)))
    return set(words(text))


def _name(inside: str) -> tuple[str, list[int]]:
    """The table and the forms a slot asks for."""
    name, _, forms = inside.partition(":")
    return name.rstrip("0123456789"), [int(form) for form in forms]


def _forms(inside: str, drawn: dict[str, Entry], rng: random.Random) -> Entry:
    name, forms = _name(inside)
    if name not in LEXICON:
        return tuple(inside.split("|"))
    label = inside.partition(":")[0]
    if label not in drawn:
        drawn[label] = rng.choice([entry for entry in LEXICON[name] if entry not in drawn.values()])
    entry = drawn[label]
    return tuple(entry[form] for form in forms) if forms else entry
