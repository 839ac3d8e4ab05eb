"""Sets of numbers as short text: '0-3,7' for people, a base64 bit mask where that is shorter."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from .errors import PlanError

MASK = "mask:"
RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)


def to_text(numbers: Sequence[int]) -> str:
    """`numbers` in ascending order, each once."""
    ranges = ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in _runs(numbers))
    if len(ranges) <= len(MASK) + 4 * (numbers[-1] // 8 + 1) // 3 if numbers else True:
        return ranges
    bits = bytearray(numbers[-1] // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    mask = MASK + base64.b64encode(bytes(bits)).decode("ascii")
    return mask if len(mask) < len(ranges) else ranges


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers that follow each other, as (first, last)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def from_text(text: str, limit: int) -> tuple[int, ...]:
    """The numbers that a text stands for; none may reach `limit`, which keeps a damaged file from filling memory."""
    if not isinstance(text, str):
        raise PlanError(f"numbers are written like '0-3,7'. Got {text!r}")
    if text.startswith(MASK):
        return _from_mask(text.removeprefix(MASK), limit)
    if not text:
        return ()
    if not RANGES.fullmatch(text):
        raise PlanError(f"numbers are written like '0-3,7'. Got {_short(text)!r}")
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if max(len(first), len(last)) > 9 or int(last or first) >= limit or int(last or first) < int(first):
            raise PlanError(f"{_short(part)!r} is not a range of numbers below {limit}")
        numbers.extend(range(int(first), int(last or first) + 1))
        if len(numbers) > limit:
            raise PlanError("a number appears twice")
    return tuple(numbers)


def is_index(text: str) -> bool:
    """Whether a text is a number that can be one of a place."""
    return text.isascii() and text.isdigit() and len(text) <= 9


def _from_mask(text: str, limit: int) -> tuple[int, ...]:
    try:
        bits = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PlanError(f"{_short(text)!r} is not a base64 bit mask") from None
    bits = bits.rstrip(b"\0")
    last = 8 * len(bits) - 9 + bits[-1].bit_length() if bits else -1
    if last >= limit:
        raise PlanError(f"a bit mask names {last}, and there are {limit} only")
    return tuple(8 * place + bit for place, byte in enumerate(bits) for bit in range(8) if byte >> bit & 1)


def _short(text: str) -> str:
    return text if len(text) < 40 else f"{text[:36]}..."
