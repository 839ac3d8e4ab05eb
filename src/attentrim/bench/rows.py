"""What one measurement says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One candidate at one shape, dtype and device. What was not measured is None, and `remark` says why."""

    batch: int
    length: int
    """Tokens per sequence, padding included; frames for speech; ignored for images."""
    dtype: str
    device: str
    backend: str
    name: str
    """"model", "against", or the name of a rival."""
    parameters: int | None = None
    milliseconds_median: float | None = None
    milliseconds_quartiles: tuple[float, float] | None = None
    speedup: float | None = None
    """The median over repeats of the reference's time divided by this one's. The reference is `against` in the same
    backend, or, where there is none, `model` in the first backend."""
    speedup_quartiles: tuple[float, float] | None = None
    flop_ratio: float | None = None
    """Theoretical speed-up (FLOPs): those of the reference divided by this one's."""
    max_abs_difference: float | None = None
    """How far the first output (logits or hidden states, without padding) is from that of the same model run in eager
    float32: what backend and dtype change. For a rival, from that of the dense model: what it changes itself."""
    sequences_per_second: float | None = None
    tokens_per_second: float | None = None
    """Padding included; None for images."""
    remark: str | None = None


def measured_pairs(bench: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(against, model) for each setting in which both were timed."""
    needed = {"name", "device", "dtype", "backend", "batch", "length", "milliseconds_median", "speedup"}
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in bench.get("rows") or []:
        if needed <= row.keys() and row["name"] in ("model", "against") and row["milliseconds_median"]:
            key = (row["device"], row["dtype"], row["backend"], row["batch"], row["length"])
            found.setdefault(key, {})[row["name"]] = row
    return [(pair["against"], pair["model"]) for pair in found.values() if len(pair) == 2]
