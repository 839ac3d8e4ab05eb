"""The attention that a run recorded of its own sentences, before training and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...guarded import parse_json

if TYPE_CHECKING:
    from numpy import ndarray

MOMENTS = ("before", "after")


@dataclass(frozen=True)
class Sentence:
    """One of the run's own examples, and how the model attended to it."""

    text: str
    tokens: list[str]
    maps: Mapping[str, Mapping[int, ndarray]]
    """By moment and site: [heads, query, key], heads being those the run started with."""


def read_sentences(path: Path) -> list[Sentence]:
    """What the attention log of a run wrote. Raises ValueError or OSError where the file is something else."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            tokens, texts = (parse_json(metadata.get(name) or "[]") for name in ("tokens", "texts"))
            if not _are_texts(texts) or not isinstance(tokens, list) or not all(map(_are_texts, tokens)):
                raise ValueError("its sentences are not texts")
            maps: list[dict[str, dict[int, ndarray]]] = [{} for _ in tokens]
            for key in file.keys():  # noqa: SIM118
                moment, sentence, site = key.split(".")
                weights = file.get_tensor(key)
                if weights.ndim != 3:
                    raise ValueError(f"{key} is not [heads, query, key]")
                maps[int(sentence)].setdefault(moment, {})[int(site)] = weights
    except (IndexError, SafetensorError) as error:
        raise ValueError(str(error)) from error
    return [
        Sentence(texts[number] if number < len(texts) else " ".join(found), found, maps[number])
        for number, found in enumerate(tokens)
    ]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def attention_changed(
    sentences: Sequence[Sentence], kept_positions: Callable[[int, int], Sequence[int]]
) -> dict[int, float]:
    """By site: 1 - cosine of a kept head's attention before and after, the mean over heads and sentences.

    `kept_positions` gives, for a site and the number of its recorded heads, where the kept ones are among them.
    """
    import numpy

    found: dict[int, list[float]] = {}
    for sentence in sentences:
        before, after = (sentence.maps.get(moment, {}) for moment in MOMENTS)
        for site in before.keys() & after.keys():
            kept = kept_positions(site, len(before[site]))
            if not kept or before[site].shape != after[site].shape:
                continue
            a, b = (side[site][list(kept)].reshape(len(kept), -1).astype(numpy.float64) for side in (before, after))
            norms = numpy.linalg.norm(a, axis=1) * numpy.linalg.norm(b, axis=1)
            found.setdefault(site, []).extend((1 - (a * b).sum(1) / numpy.maximum(norms, 1e-12)).tolist())
    return {site: sum(values) / len(values) for site, values in sorted(found.items()) if values}
