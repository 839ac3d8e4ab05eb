"""What a tokenizer cannot do without, so that texts whose tokens are kept are tokenised as before.

WordPiece takes the longest match at each place: among fewer tokens, the one that was longest still is, if it is kept.

Unigram takes the path of the highest score. It is still there, and what is there beside it was there before, with one
exception: a character whose own piece is gone counts as unknown, at the lowest score of all pieces less a constant. As
long as the piece of the lowest score is kept, that is less than the character's piece had, and no such path wins.

BPE applies, of the merges that can be applied, the one that was learnt first. Merges inside a token's span do not
depend on what surrounds it, so the merges that make a token of its characters are always the same; if they are all
kept, each still comes before all others that can be applied.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

from ..errors import UnsupportedModelError
from .tokens import Vocabulary

CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)
"""Kept beside those that occur, where the vocabulary has them: to write other words with."""
BYTES = frozenset(ByteLevel.alphabet())
"""How byte-level tokenizers write bytes."""
BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def needed(vocabulary: Vocabulary, kept: Iterable[int]) -> set[int]:
    """The ids that must be kept with these."""
    model, tokens = vocabulary.model, [vocabulary.tokens[number] for number in kept]
    if model["type"] not in KINDS:
        raise UnsupportedModelError(f"A {model['type']} tokenizer is not supported: {', '.join(KINDS)} are.")
    names = KINDS[model["type"]](vocabulary, tokens)
    if model.get("unk_token") is not None:
        names.add(str(model["unk_token"]))
    if model.get("byte_fallback"):
        names |= {token for token in vocabulary.numbers if BYTE.fullmatch(token)}
    return {vocabulary.numbers[name] for name in names if name in vocabulary.numbers} | _by_number(model)


def _by_number(model: Mapping[str, Any]) -> set[int]:
    """Of Unigram, what stands for the unknown, and the piece of the lowest score."""
    if model["type"] != "Unigram":
        return set()
    scores = [score for _, score in model["vocab"]]
    return {scores.index(min(scores)), *([model["unk_id"]] if model.get("unk_id") is not None else [])}


def _wordpiece(vocabulary: Vocabulary, tokens: list[str]) -> set[str]:
    prefix = str(vocabulary.model["continuing_subword_prefix"])
    found = CHARACTERS.union(*(token.removeprefix(prefix) for token in tokens))
    return {*found, *(prefix + character for character in found)}


def _unigram(vocabulary: Vocabulary, tokens: list[str]) -> set[str]:
    return {*CHARACTERS.union(*tokens)}


def _bpe(vocabulary: Vocabulary, tokens: list[str]) -> set[str]:
    merges, found = Merges(vocabulary), {*BYTES.union(*tokens)}
    for token in tokens:
        found |= merges.parts(token)
    return found


def _words(vocabulary: Vocabulary, tokens: list[str]) -> set[str]:
    return set()


KINDS: dict[str, Any] = {"WordPiece": _wordpiece, "Unigram": _unigram, "BPE": _bpe, "WordLevel": _words}


class Merges:
    """How BPE makes a token of its characters."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.rank = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
        self.making: dict[str, list[tuple[str, str]]] = {}
        for pair in self.rank:
            self.making.setdefault(vocabulary.merged(pair), []).append(pair)

    def parts(self, token: str) -> set[str]:
        """All that stands between the characters and the token."""
        symbols = list(token)
        found = set(symbols)
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            place = min(range(len(pairs)), key=lambda index: self.rank.get(pairs[index], len(self.rank)))
            if pairs[place] not in self.rank:
                return found | self._all_parts(token)
            symbols[place : place + 2] = ["".join(pairs[place])]
            found.add(symbols[place])
        return found

    def _all_parts(self, token: str) -> set[str]:
        """Of all merges that could make the token: where it does not begin as single characters."""
        found, left = {token}, [token]
        while left:
            for pair in self.making.get(left.pop(), []):
                left.extend(part for part in pair if part not in found)
                found.update(pair)
        return found
