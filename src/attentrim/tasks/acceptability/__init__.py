"""English sentences to judge as acceptable or not, made by a seeded generator: no file, no network.

They come as minimal pairs, half of them acceptable, made from frames in which every word stands as often in a good
sentence as in a bad one. The judgement is in the relation between words, most of them apart from each other. A
sentence's content words alone decide its split, so none is in two of them, whatever the seed.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import TaskError, unknown_name
from . import frames
from .lexicon import LEMMAS
from .phenomena import FRAMES

__all__ = ["PHENOMENA", "SPLITS", "Pair", "pairs", "sentences", "vocabulary"]


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in one word, or in the order of two."""

    phenomenon: str
    good: str
    bad: str


PHENOMENA: tuple[str, ...] = tuple(FRAMES)

SPLITS: dict[str, int] = {"train": 4032, "validation": 1008, "test": 1008}
"""Sentences in each by default: whole rounds of four sentences of every phenomenon, which balances every word."""

_MOST = 10
"""A split holds this many times its default without saying anything twice."""

_SHARES = ("train", "train", "train", "train", "validation", "test")


def pairs(split: str, seed: int = 0, count: int | None = None) -> list[Pair]:
    """The first `count` minimal pairs of a split, each phenomenon as often as any other."""
    return list(itertools.islice(_generate(split, seed), _checked(split, count, unit=2)))


def sentences(split: str, seed: int = 0, count: int | None = None) -> list[tuple[str, int]]:
    """`count` sentences of a split and their labels (1: acceptable), shuffled: both members of every pair."""
    count = _checked(split, count, unit=1)
    drawn = itertools.islice(_generate(split, seed), (count + 1) // 2)
    labelled = [example for pair in drawn for example in ((pair.good, 1), (pair.bad, 0))][:count]
    random.Random(f"order of {split} {seed}").shuffle(labelled)
    return labelled


def vocabulary() -> list[str]:
    """Every lower-cased word form and punctuation mark that can occur, sorted."""
    return sorted(set().union(*(frames.vocabulary(frame) for table in FRAMES.values() for frame in table)))


def _checked(split: str, count: int | None, unit: int) -> int:
    """The number to make, in units of so many sentences."""
    if split not in SPLITS:
        raise TaskError(unknown_name("split", split, SPLITS))
    if count is None:
        return SPLITS[split] // unit
    most = _MOST * SPLITS[split] // unit
    if not 0 <= count <= most:
        kind = "sentences" if unit == 1 else "pairs"
        raise TaskError(f"The count of {kind} of {split} must be in [0, {most}], where none repeats. Got {count}.")
    return count


def _generate(split: str, seed: int) -> Iterator[Pair]:
    """Pairs of all phenomena in turn. Each frame gives two, one after the other, which balance one another."""
    rng = random.Random(f"{split} {seed}")
    seen: set[str] = set()
    while True:
        round_ = [_fresh(phenomenon, split, rng, seen) for phenomenon in PHENOMENA]
        for turn in zip(*round_, strict=True):
            yield from turn


def _fresh(phenomenon: str, split: str, rng: random.Random, seen: set[str]) -> list[Pair]:
    """Two pairs that belong to the split and say nothing said before."""
    while True:
        found = frames.fill(rng.choice(FRAMES[phenomenon]), rng)
        made = [text for pair in found for text in pair]
        if _split_of(made[0]) == split and seen.isdisjoint(made):
            seen.update(made)
            return [Pair(phenomenon, *pair) for pair in rng.sample(found, 2)]


def _split_of(text: str) -> str:
    """The split of every sentence with these content words, in whatever order and form."""
    content = sorted({LEMMAS[word] for word in frames.words(text) if word in LEMMAS})
    return _SHARES[zlib.crc32(" ".join(content).encode()) % len(_SHARES)]
