"""What a plan leaves of a model, layer by layer: for cards, reports and the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import Plan
from .sites import layer_of

REMOVED = "removed"


@dataclass(frozen=True)
class LayerRow:
    index: int
    path: str
    cells: tuple[str, ...]
    """What is left, one text per column: '8 of 12', 'uniform', 'removed'."""


@dataclass(frozen=True)
class Breakdown:
    columns: tuple[str, ...]
    rows: tuple[LayerRow, ...]


def breakdown(plan: Plan) -> Breakdown:
    """One row per layer of the full model, one column for each sort of place that a layer holds."""
    held = {places: found for places, found in plan.shapes.items() if found and found[0].column}
    cells: dict[str, dict[str, str]] = {}
    for places, found in held.items():
        for before, after in zip(found, plan.final(places), strict=True):
            text = REMOVED if after is None else after.left_of(before)
            cells.setdefault(layer_of(before.path), {})[places] = text
    columns = tuple(found[0].column for found in held.values())
    rows = (
        LayerRow(index, path, tuple(here.get(places, "") for places in held))
        for index, (path, here) in enumerate(cells.items())
    )
    return Breakdown(columns, tuple(rows))
