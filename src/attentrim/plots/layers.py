"""What is left of each layer, and when it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runs.reader import as_run
from .heads import Run
from .style import BLUE, GREEN, ORANGE, PINK, axes, below, layers_look, nothing, tidy, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SORTS = (BLUE, ORANGE, GREEN, PINK)
HATCHES = ("", "//", "..", "xx")
"""Beside colours: sorts must not differ by colour alone."""


def left_by_layer(run: Run, ax: Axes | None = None) -> Axes:
    """The share of its heads and neurons that each layer keeps. Removed layers and uniform attention are marked."""
    from ..breakdown import breakdown

    run = as_run(run)
    if run.plan is None:
        raise nothing("plan", run.path)
    found = breakdown(run.plan)
    ax = axes(ax, (6.0, max(2.8, 0.9 + 0.32 * len(found.rows))))
    height = 0.8 / max(1, len(found.columns))
    for number, name in enumerate(found.columns):
        places = [row.index + (number - (len(found.columns) - 1) / 2) * height for row in found.rows]
        shares = [100 * (row.cells[number].share or 0.0) for row in found.rows]
        colour, hatch = SORTS[number % len(SORTS)], HATCHES[number % len(HATCHES)]
        ax.barh(places, shares, 0.9 * height, label=name, color=colour, hatch=hatch)
        for place, row in zip(places, found.rows, strict=True):
            if row.cells[number].share is None and row.cells[number].text:
                ax.text(0, place, f" {row.cells[number].text}", va="center", fontsize="small")
    for row in found.rows:
        if all(cell.text == "removed" for cell in row.cells):
            ax.text(0, row.index, " removed", va="center", fontsize="small")
    ax.set_xlim(0, 100)
    whole_ticks(ax, y=range(len(found.rows)))
    ax.invert_yaxis()
    below(ax)
    return tidy(ax, "kept (%)", "layer")


def open_over_training(run: Run, kind: str = "neurons", ax: Axes | None = None) -> Axes:
    """How many units of a kind are open, one line per block, over steps."""
    run = as_run(run)
    steps, rows = run.by_site(f"{kind}_open")
    if not steps:
        raise nothing(f"{kind} over training", run.path)
    ax = axes(ax)
    for number, how in enumerate(layers_look(len(rows[0]))):
        ax.plot(steps, [row[number] for row in rows], label=f"block {number}", **how)
    ax.set_ylim(bottom=0)
    below(ax, columns=3)
    return tidy(ax, "step", f"open {kind}")
