"""What `bench.json` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...guarded import is_number

MOST_PAIRS = 200
"""More than anyone compares, or can see in one figure."""
NEEDED = {"name", "device", "dtype", "backend", "batch", "length", "milliseconds_median", "speedup"}


def measured_pairs(bench: Mapping[str, Any], decoding: bool = False) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(against, model) for each setting in which both were timed; `against` is what the model's speed-up refers to.

    Forward passes, or with `decoding` the steps of generation.
    """
    rows = [row for row in bench.get("rows") or [] if _is_measured(row)]
    rows = [row for row in rows if (row.get("new_tokens") is not None) is decoding]
    against = {_setting(row, row["backend"]): row for row in rows if row["name"] == "against"}
    pairs = []
    for row in rows:
        before = against.get(_setting(row, row.get("reference_backend") or row["backend"]))
        if row["name"] == "model" and row["speedup"] and before:
            pairs.append((before, row))
    return pairs[:MOST_PAIRS]


def _is_measured(row: Any) -> bool:
    """Whether a row has all that is shown of it, in the types that can be."""
    return (
        isinstance(row, dict)
        and row.keys() >= NEEDED
        and all(isinstance(row[name], str) for name in ("name", "device", "dtype", "backend"))
        and isinstance(row.get("reference_backend") or "", str)
        and all(isinstance(row[name], int) for name in ("batch", "length"))
        and is_number(row["milliseconds_median"])
        and row["milliseconds_median"] > 0
        and is_number(row["speedup"])
        and (row.get("new_tokens") is None or _is_decoding(row))
    )


def _is_decoding(row: Mapping[str, Any]) -> bool:
    numbers = ("new_tokens", "tokens_per_second", "prefill_milliseconds")
    return all(is_number(row.get(name)) for name in numbers)


def _setting(row: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    return (row["device"], row["dtype"], backend, row["batch"], row["length"])


def measured_speedup(bench: Mapping[str, Any]) -> float | None:
    """Of the first setting; None where nothing was timed."""
    return next((float(after["speedup"]) for _, after in measured_pairs(bench)), None)
