"""What speed costs: the metric at each of several speeds, and where the time of a model went."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..runs.reader import Recorded, as_run
from .families import SpeedOfRun, dense_values, family, speeds_of_run
from .heads import Run
from .style import BLUE, GREEN, GREY, ORANGE, PINK, axes, below, look, nothing, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = (BLUE, ORANGE, GREY, GREEN, PINK)
HATCHES = ("", "//", "..", "xx", "\\\\")
"""Beside colours: parts must not differ by colour alone."""


def metric_against_speed(runs: Run | Iterable[Run], ax: Axes | None = None) -> Axes:
    """The metric of each model against its measured speed, for all models of one training or of several runs.

    One line per method; bars are standard deviations over seeds. Dense models are at 1 ×.
    """
    alone = isinstance(runs, str | Path | Recorded)
    found = [as_run(runs)] if isinstance(runs, str | Path | Recorded) else [as_run(run) for run in runs]
    if not alone:
        points = family(found)
    else:
        left = speeds_of_run(found[0]) if found[0].speeds else []
        points = [SpeedOfRun("trimmed", "trimmed", speed, (value,)) for _, speed, value in left]
    if not points:
        raise nothing("models of a measured speed", found[0].path if found else "the comparison")
    ax = axes(ax)
    dense = dense_values(found)
    if dense:
        mean = statistics.fmean(dense.values())
        ax.axhline(mean, color=GREY, linestyle="--", linewidth=1)
        ax.plot([1], [mean], color=GREY, marker="D", linestyle="", label=found[0].before["of"] if alone else "dense")
    by_method: dict[str, list[SpeedOfRun]] = {}
    for point in points:
        by_method.setdefault(point.method, []).append(point)
    for number, (method, line) in enumerate(by_method.items()):
        speeds, means = [point.speed for point in line], [point.mean for point in line]
        errors = [point.sd for point in line]
        ax.plot(speeds, means, label=method, **look(number))
        if any(errors):
            ax.errorbar(speeds, means, yerr=errors, capsize=2, fmt="none", ecolor=look(number)["color"])
    below(ax)
    return tidy(ax, "measured speed-up (×)", str(found[0].metrics.get("metric", "metric")))


def layer_times(run: Run, ax: Axes | None = None) -> Axes:
    """The time of each layer by part, as two stacked bars: before (pale) and after."""
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
