"""A measurement as a JSON object: what was measured, with what, and the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..cost import Cost
from .rows import Row


def bench_record(
    names: tuple[str, str | None],
    sizes: tuple[Cost, Cost | None],
    rows: Sequence[Row],
    machine: Mapping[str, Any],
    repeats: int,
    padding: float,
) -> dict[str, Any]:
    """Names and sizes are those of the model and of the one that it was measured against."""
    size, against = sizes
    return {
        "model": names[0],
        "against": names[1],
        "machine": dict(machine),
        "repeats": repeats,
        "padding": padding,
        **size.as_dict(),
        **{f"{name}_against": None if against is None else against.as_dict().get(name) for name in size.as_dict()},
        "flops_length": size.length,
        "rows": [asdict(row) for row in rows],
    }
