"""What `bench.json` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEEDED = {"name", "device", "dtype", "backend", "batch", "length", "milliseconds_median", "speedup"}


def measured_pairs(bench: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(against, model) for each setting in which both were timed."""
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in bench.get("rows") or []:
        if row.keys() >= NEEDED and row["name"] in ("model", "against") and row["milliseconds_median"]:
            key = (row["device"], row["dtype"], row["backend"], row["batch"], row["length"])
            found.setdefault(key, {})[row["name"]] = row
    return [(pair["against"], pair["model"]) for pair in found.values() if len(pair) == 2]


def measured_speedup(bench: Mapping[str, Any]) -> float | None:
    """Of the first setting; None where nothing was timed."""
    return next((float(after["speedup"]) for _, after in measured_pairs(bench)), None)
