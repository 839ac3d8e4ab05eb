"""How similar a model's embeddings are to a teacher's, and how well they match human scores of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FEWEST = 3
"""Texts whose similarities can be ranked at all."""
NEIGHBOURS = 10
MOST_PAIRS = 2_000_000
"""Pairs whose similarities are ranked; of more, so many are chosen at random with a fixed seed."""
ROWS = 1024
"""Texts that are compared with all others at a time."""


def measures(mine: Any, theirs: Any) -> dict[str, float]:
    """Of embeddings [texts, width] and a teacher's of the same texts, of any width."""
    mine, theirs = _normalised(mine), _normalised(theirs)
    found = {"similarity_spearman": _similarity_spearman(mine, theirs)}
    if mine.shape == theirs.shape:
        found["cosine"] = float((mine * theirs).sum(1).mean())
    return {**found, "neighbours": _neighbours_kept(mine, theirs)}


def pairs_spearman(outputs: Any, scores: Sequence[float]) -> float:
    """Of the cosine of each pair and its score; all first texts come before all second ones."""
    from .metrics import METRICS

    first, second = _normalised(outputs[: len(scores)]), _normalised(outputs[len(scores) :])
    return METRICS["spearman"](scores, (first * second).sum(1))


def neighbours_of(texts: int) -> int:
    """How many nearest neighbours are compared."""
    return min(NEIGHBOURS, texts - 1)


def _normalised(vectors: Any) -> Any:
    import numpy

    vectors = numpy.asarray(vectors, dtype=numpy.float32)
    return vectors / numpy.maximum(numpy.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _similarity_spearman(mine: Any, theirs: Any) -> float:
    """Of the cosines of all pairs of texts."""
    import numpy

    from .metrics import METRICS

    count = len(mine)
    if count * (count - 1) // 2 <= MOST_PAIRS:
        first, second = numpy.triu_indices(count, 1)
        found = [(vectors @ vectors.T)[first, second] for vectors in (mine, theirs)]
    else:
        random = numpy.random.default_rng(0)
        first = random.integers(count, size=MOST_PAIRS)
        second = (first + random.integers(1, count, size=MOST_PAIRS)) % count  # never the text itself
        found = [_cosines(vectors, first, second) for vectors in (mine, theirs)]
    return METRICS["spearman"](found[1], found[0])


def _cosines(vectors: Any, first: Any, second: Any) -> Any:
    import numpy

    size = 100 * ROWS
    starts = range(0, len(first), size)
    parts = [(first[start : start + size], second[start : start + size]) for start in starts]
    return numpy.concatenate([(vectors[a] * vectors[b]).sum(1) for a, b in parts])


def _neighbours_kept(mine: Any, theirs: Any) -> float:
    """The share of the nearest neighbours by the teacher's cosines that are nearest by these too."""
    count = neighbours_of(len(mine))
    kept = 0
    for start in range(0, len(mine), ROWS):
        near, wanted = (_nearest(vectors, start, count) for vectors in (mine, theirs))
        kept += sum(len({*a} & {*b}) for a, b in zip(near.tolist(), wanted.tolist(), strict=True))
    return kept / (len(mine) * count)


def _nearest(vectors: Any, start: int, count: int) -> Any:
    """Of the texts from `start` on: the numbers of the texts nearest to each, itself left out."""
    import numpy

    cosines = vectors[start : start + ROWS] @ vectors.T
    cosines[numpy.arange(len(cosines)), numpy.arange(start, start + len(cosines))] = -numpy.inf
    return numpy.argpartition(-cosines, count - 1, axis=1)[:, :count]
