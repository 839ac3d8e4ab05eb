"""What speed costs: the metric at each of several speeds, and where the time of a model went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runs.reader import as_run
from .heads import Run
from .style import BLUE, GREEN, GREY, ORANGE, PINK, axes, below, nothing, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = (BLUE, ORANGE, GREY, GREEN, PINK)
HATCHES = ("", "//", "..", "xx", "\\\\")
"""Beside colours: parts must not differ by colour alone."""


def metric_against_speed(run: Run, ax: Axes | None = None) -> Axes:
    """The metric of each model that one training left, against its measured speed; the dense model is at 1 ×."""
    run = as_run(run)
    points = sorted(
        (point.measured, point.value) for point in run.speeds if point.measured is not None and point.value is not None
    )
    if not points:
        raise nothing("models of several speeds", run.path)
    ax = axes(ax)
    if run.before:
        ax.axhline(run.before["value"], color=GREY, linestyle="--", linewidth=1)
        ax.plot([1], [run.before["value"]], color=GREY, marker="D", linestyle="", label=str(run.before["of"]))
    speeds, values = zip(*points, strict=True)
    ax.plot(speeds, values, color=BLUE, marker="o", label="trimmed")
    below(ax)
    return tidy(ax, "measured speed-up (×)", str(run.metrics.get("metric", "metric")))


def layer_times(run: Run, ax: Axes | None = None) -> Axes:
    """Where the time goes: two stacked bars per layer, before (pale) and after."""
    run = as_run(run)
    found = run.layer_times
    if found is None:
        raise nothing("times of layers", run.path)
    ax = axes(ax, (6.0, max(2.8, 0.9 + 0.32 * len(found.layers))))
    for shift, moments, alpha in ((-0.2, found.before, 0.45), (0.2, found.after, 1.0)):
        left = [0.0] * len(found.layers)
        places = [number + shift for number in range(len(found.layers))]
        for part, name in enumerate(found.parts):
            widths = [0.0 if times is None else times[part] for times in moments]
            bars = ax.barh(places, widths, 0.38, left, color=PARTS[part % len(PARTS)], alpha=alpha)
            for bar in bars:
                bar.set_hatch(HATCHES[part % len(HATCHES)])
            bars.set_label(name if moments is found.after else f"{name}, before")
            left = [start + width for start, width in zip(left, widths, strict=True)]
    for number, after in enumerate(found.after):
        if after is None:
            ax.text(0, number + 0.2, " removed", va="center", fontsize="small")
    ax.set_yticks(range(len(found.layers)), [str(layer) for layer in found.layers])
    ax.invert_yaxis()
    below(ax, columns=2)
    return tidy(ax, found.unit, "layer")
