"""What a plan leaves of a model, layer by layer: for cards, reports and the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import Plan
from .sites import layer_of
from .structures import STRUCTURES


@dataclass(frozen=True)
class Cell:
    """What is left of one type of unit in one layer."""

    text: str
    """'8 of 12', 'uniform', 'removed'"""
    share: float | None
    """From 0 to 1; None where the units are there and do something else."""


@dataclass(frozen=True)
class LayerRow:
    index: int
    path: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Breakdown:
    columns: tuple[str, ...]
    rows: tuple[LayerRow, ...]

    def kept(self) -> dict[str, list[str]]:
        """By column, what each layer keeps, in short: '8', 'uniform', 'removed'."""
        return {
            name: [row.cells[number].text.partition(" of ")[0] or "-" for row in self.rows]
            for number, name in enumerate(self.columns)
        }


NOTHING = Cell("", None)
REMOVED = Cell("removed", 0.0)


def breakdown(plan: Plan) -> Breakdown:
    """One row per layer of the full model, one column for each type of block in a layer."""
    held = {places: found for places, found in plan.shapes.items() if found and found[0].column}
    cells: dict[str, dict[str, Cell]] = {}
    for places, found in held.items():
        for before, after in zip(found, plan.final(places), strict=True):
            cell = REMOVED if after is None else Cell(after.left_of(before), after.share_of(before))
            cells.setdefault(layer_of(before.path), {})[places] = cell
    columns = tuple(found[0].column for found in held.values())
    rows = (
        LayerRow(index, path, tuple(here.get(places, NOTHING) for places in held))
        for index, (path, here) in enumerate(cells.items())
    )
    return Breakdown(columns, tuple(rows))


def change(name: str, before: float, after: float, plan: Plan | None = None) -> str:
    """How a count changed, for a table of sizes: '-41.3%'.

    Heads of uniform sites are gone but not removed (AutoAttention, eq. 14). A percentage would count them as removed,
    so if the plan has such units, their number is given separately.
    """
    known = plan is not None and name in STRUCTURES and STRUCTURES[name].places in plan.shapes
    left = STRUCTURES[name].left(plan) if known else None
    if left is not None and left.apart:
        return left.note if (left.total, left.kept) == (before, after) else ""  # or the counts are of other models
    return f"{(after - before) / before:+.1%}" if before else ""
