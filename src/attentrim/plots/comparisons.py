"""Runs beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..guarded import is_number
from .points import Point, Results, read_points
from .style import BLUE, GREY, ORANGE, axes, below, look, nothing, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def metric_against_sparsity(results: Results, ax: Axes | None = None) -> Axes:
    """The metric against the share of heads removed, one line per method, with standard deviations.

    As in AutoAttention's Figure 2. Heads of uniform sites count as removed.
    """
    found = read_points(results)
    if not found.points:
        raise nothing("finished runs", "the comparison")
    ax = axes(ax)
    base = found.base
    if base is not None:
        ax.axhline(base.mean, color=GREY, linestyle="--", linewidth=1.5, label=f"{base.name} (baseline)")
    by_method: dict[str, list[Point]] = {}
    for point in found.points:
        if point is not base:
            by_method.setdefault(point.method, []).append(point)
    for number, (method, points) in enumerate(by_method.items()):
        points.sort(key=lambda point: point.gone)
        errors = [point.sd for point in points]
        ax.errorbar(
            [100 * point.gone for point in points],
            [point.mean for point in points],
            yerr=errors if any(errors) else None,
            capsize=2,
            label=method if len(points) > 1 else points[0].name,
            **look(number),
        )
    below(ax)
    return tidy(ax, f"{found.gone_means} (%)", found.metric)


def sweep(results: Results, setting: str, ax: Axes | None = None) -> Axes:
    """Metric (left) and share of heads removed (right) over a setting, as in AutoAttention's Figures 6 and 7."""
    found = read_points(results)
    points = [(value, point) for point in found.points if (value := _value(point, setting)) is not None]
    points.sort(key=lambda pair: pair[0])
    if len({value for value, _ in points}) < 2:
        raise nothing(f"runs with two or more values of {setting}", "the comparison")
    ax = axes(ax)
    values = [value for value, _ in points]
    means = [point.mean for _, point in points]
    errors = [point.sd for _, point in points]
    ax.errorbar(
        values, means, yerr=errors if any(errors) else None, capsize=2, color=BLUE, marker="o", label=found.metric
    )
    if min(values) > 0 and max(values) / min(values) >= 10:
        ax.set_xscale("log")
    right = ax.twinx()
    removed = [100 * point.sparsity for _, point in points]
    right.plot(values, removed, color=ORANGE, marker="s", linestyle="--", label="heads removed (%)")
    right.set_ylim(0, 100)
    right.set_ylabel("heads removed (%), dashed")
    tidy(ax, setting, f"{found.metric}, solid")
    ax.spines["right"].set_visible(True)
    right.spines["top"].set_visible(False)
    return ax


def _value(point: Point, setting: str) -> float | None:
    try:
        value = float(point.settings[setting])
    except (KeyError, TypeError, ValueError):
        return None
    return value if is_number(value) else None
