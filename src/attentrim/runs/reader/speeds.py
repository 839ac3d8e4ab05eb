"""What a result says of the time that each layer takes, and of the several speeds that one training left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...guarded import is_number

MOST_LAYERS, MOST_PARTS = 1000, 20
"""More than any model has: a result that names more is damaged."""


@dataclass(frozen=True)
class LayerTimes:
    """Where the time goes, before and after, by layer of the full model."""

    unit: str
    """'ms', or 'MFLOPs' where nothing was timed."""
    setting: str
    """'8 x 128 tokens, cpu, float32, sdpa'"""
    parts: tuple[str, ...]
    """Of a layer: 'attention', 'feed-forward', 'rest'."""
    layers: tuple[int, ...]
    before: tuple[tuple[float, ...], ...]
    """By layer, the time of each part."""
    after: tuple[tuple[float, ...] | None, ...]
    """None where the layer is gone."""
    outside: float
    """What embeddings and task head take."""

    @property
    def title(self) -> str:
        return "Where the time went" if self.unit == "ms" else f"Where the {self.unit} went (not timed)"

    @property
    def total_before(self) -> float:
        return self.outside + sum(map(sum, self.before))

    @property
    def total_after(self) -> float:
        return self.outside + sum(sum(layer) for layer in self.after if layer is not None)


@dataclass(frozen=True)
class SpeedPoint:
    """One of several models that one training left."""

    asked: float
    measured: float | None
    flops: float | None
    """The speed-up in theory."""
    value: float | None
    directory: str


def layer_times_of(result: Mapping[str, Any]) -> LayerTimes | None:
    """None where there are none, or where they cannot be made sense of."""
    data = result.get("layer_times")
    try:
        rows = data["rows"]  # type: ignore[index]
        parts = tuple(dict.fromkeys(part for row in rows for part in row["before"]))
        if len(rows) > MOST_LAYERS or len(parts) > MOST_PARTS:
            return None
        found = LayerTimes(
            str(data["unit"]),  # type: ignore[index]
            "{batch} x {length} tokens, {device}, {dtype}, {backend}".format(**data),  # type: ignore[arg-type]
            parts,
            tuple(int(row["layer"]) for row in rows),
            tuple(_times(row["before"], parts) for row in rows),
            tuple(None if row["after"] is None else _times(row["after"], parts) for row in rows),
            _number(data.get("rest") or 0.0),  # type: ignore[union-attr]
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return found if found.layers and found.parts else None


def speeds_of(result: Mapping[str, Any]) -> list[SpeedPoint]:
    """Slowest first; those that cannot be made sense of are left out."""
    found = []
    for entry in result.get("speeds") or []:
        try:
            measured, flops, value = (
                None if entry.get(name) is None else _number(entry[name]) for name in ("measured", "flops", "value")
            )
            directory = str(entry.get("directory") or "")
            found.append(SpeedPoint(_number(entry["asked"]), measured, flops, value, directory))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return sorted(found, key=lambda point: point.asked)


def _times(entry: Mapping[str, Any], parts: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(_number(entry.get(part) or 0.0) for part in parts)


def _number(value: Any) -> float:
    if not is_number(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)
