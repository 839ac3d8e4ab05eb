"""Ids of tokens in configs: found, and put in place of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

NAMES = re.compile(
    r".*_token_ids?|.*_token_index|(pad|bos|eos|unk|mask|sep|cls)_index|(begin_)?suppress_tokens|bad_words_ids"
    r"|force_words_ids|forced_decoder_ids|sequence_bias"
)
"""Settings that hold ids: one, a list, or lists within lists."""
PLACED = "forced_decoder_ids"
"""Pairs of a place and an id."""
BIASED = "sequence_bias"
"""Ids, each sequence with a number that is none."""
SIZES = ("vocab_size", "decoder_vocab_size")


def ids_in(config: Any) -> set[int]:
    """All ids that a config, a config within it, or a generation config names."""
    found: set[int] = set()

    def remember(number: int) -> int:
        found.add(number)
        return number

    for place in _parts(config):
        for name, value in _settings(place):
            _replaced(name, value, remember)
    return found


def renumber(config: Any, numbers: Mapping[int, int], rows: int) -> None:
    """Put the new ids in, and the new size where there was the old one. Ids that no row had stay what they were."""
    for place in _parts(config):
        for name, value in _settings(place):
            changed = _replaced(name, value, lambda number: numbers.get(number, number))
            if changed != value:
                place[name] = changed
        for name in SIZES:
            if place.get(name) == rows:
                place[name] = len(numbers)


def _parts(config: Any) -> Iterator[dict[str, Any]]:
    """The settings of a config, and of those within it."""
    place = config if isinstance(config, dict) else vars(config)
    yield place
    for value in list(place.values()):
        if isinstance(value, dict | PreTrainedConfig | GenerationConfig):
            yield from _parts(value)


def _settings(place: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in place.items() if isinstance(name, str) and NAMES.fullmatch(name)]


def _replaced(name: str, value: Any, change: Callable[[int], int]) -> Any:
    if name == PLACED and isinstance(value, list):
        return [[place, _each(number, change)] for place, number in value]
    if name == BIASED and isinstance(value, dict):
        return {_each(sequence, change): bias for sequence, bias in value.items()}
    if name == BIASED and isinstance(value, list):
        return [[_each(sequence, change), bias] for sequence, bias in value]
    return _each(value, change)


def _each(value: Any, change: Callable[[int], int]) -> Any:
    if type(value) is int:
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_each(item, change) for item in value)
    return value
