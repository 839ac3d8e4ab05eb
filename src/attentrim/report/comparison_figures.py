"""The figures of the page about several runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from .. import plots
from ..guarded import is_number
from ..plots.families import dense_values, family, settings_of
from ..plots.points import Point, Points
from ..runs.headline import times
from ..runs.reader import Recorded
from .compared import Compared
from .figures import Figure, Numbers, figure, present, short

MOST_LINES, MOST_MAPS = 8, 24


def comparison_figures(points: Points, ended: Sequence[Compared], source: Any) -> list[Figure]:
    return present(
        [
            _against_speed(ended, points.metric),
            _against_sparsity(points, source),
            _by_epoch(ended),
            *_sweeps(points, source),
        ]
    )


def _against_speed(ended: Sequence[Compared], metric: str) -> Figure | None:
    """None where no model is faster than another."""
    runs = [one.run for one in ended]
    points = [point for point in family(runs) if abs(point.speed - 1) > 0.005]
    if not points:
        return None
    dense = dense_values(runs)
    words = "; ".join(f"{point.entry}: {point.mean:.4f} at {times(point.speed)}" for point in points) + "."
    if dense:
        words += f" Dense: {statistics.fmean(dense.values()):.4f}."
    settings = settings_of(runs)
    words += f" Timed at {settings[0]}." if len(settings) == 1 else " Not all were timed in the same setting."
    rows = [[point.entry, times(point.speed), f"{point.mean:.4f}", f"{point.sd:.4f}"] for point in points]
    numbers = Numbers(["run", "measured speed-up", metric, "sd"], rows)
    return figure(f"{metric} against measured speed", lambda ax: plots.metric_against_speed(runs, ax), words, numbers)


def _against_sparsity(points: Points, source: Any) -> Figure | None:
    if not any(point.gone for point in points.points):
        return None
    ordered = sorted(points.points, key=lambda point: point.gone)
    words = "; ".join(f"{point.name}: {point.mean:.4f} with {point.gone:.0%} gone" for point in ordered) + "."
    rows = [[point.name, f"{point.gone:.1%}", f"{point.mean:.4f}", f"{point.sd:.4f}"] for point in ordered]
    numbers = Numbers(["run", points.gone_means, points.metric, "sd"], rows)
    title = f"{points.metric} against {points.gone_means}"
    return figure(title, lambda ax: plots.metric_against_sparsity(source, ax), words, numbers)


def _by_epoch(ended: Sequence[Compared]) -> Figure | None:
    """One line per entry, that of its first seed."""
    firsts: dict[str, Recorded] = {}
    for one in ended:
        if one.run.curve(f"eval_{one.run.metrics['metric']}")[0]:
            firsts.setdefault(one.entry, one.run)
    shown = dict(list(firsts.items())[:MOST_LINES])
    if not shown:
        return None
    metric = next(iter(shown.values())).metrics["metric"]
    last = {name: run.curve(f"eval_{metric}")[1][-1] for name, run in shown.items()}
    words = "At the end: " + ", ".join(f"{name} {value:.4f}" for name, value in last.items()) + "."
    if len(firsts) > len(shown):
        words += f" {len(firsts) - len(shown)} more are left out."
    seeds = {run.seed for run in shown.values()}
    title = f"{metric} by epoch" + (f", seed {seeds.pop()}" if len(seeds) == 1 else "")
    return figure(title, lambda ax: plots.metric_by_epoch(shown, ax, metric=metric), words)


def _sweeps(points: Points, source: Any) -> list[Figure | None]:
    """A figure for each setting that three or more entries of a method give different numbers."""
    names = dict.fromkeys(name for point in points.points for name in (point.settings.get("method_config") or {}))
    return [_sweep(name, points, source) for name in names if name != "target_sparsity"]


def _sweep(name: str, points: Points, source: Any) -> Figure | None:
    """None where other settings differ too, or where there are too few values."""
    swept = [point for point in points.points if _is_number(point.settings.get(name))]
    if len({point.settings[name] for point in swept}) < 3 or len({_others(name, point) for point in swept}) > 1:
        return None
    swept.sort(key=lambda point: float(point.settings[name]))
    words = "; ".join(
        f"{name} {point.settings[name]}: {point.mean:.4f}, {point.sparsity:.0%} removed" for point in swept
    )
    return figure(f"Sweep over {name}", lambda ax: plots.sweep(source, name, ax), f"{words}.")


def _others(name: str, point: Point) -> str:
    """The method's other settings, to compare."""
    settings = point.settings.get("method_config") or {}
    return str({key: value for key, value in settings.items() if key != name})


def _is_number(value: Any) -> bool:
    try:
        return is_number(float(value)) and not isinstance(value, bool)
    except (TypeError, ValueError):
        return False


def head_maps(ended: Sequence[Compared]) -> list[Figure]:
    """The heads that each entry kept, over its seeds; nothing of those that kept all."""
    by_entry: dict[str, list[Recorded]] = {}
    for one in ended:
        if one.run.plan:
            by_entry.setdefault(one.entry, []).append(one.run)
    return present([_map(name, found) for name, found in list(by_entry.items())[:MOST_MAPS]])


def _map(name: str, runs: Sequence[Recorded]) -> Figure | None:
    plans = [run.plan for run in runs if run.plan]
    kept = [statistics.fmean(column) for column in zip(*(plan.heads_kept for plan in plans), strict=False)]
    words = "Heads kept by layer: " + ", ".join(short(count) for count in kept)
    if len(plans) == 1:
        return figure(name, lambda ax: plots.head_map(plans[0], ax), f"{words}.")
    words += f", the mean over {len(plans)} seeds. Darker squares were kept by more of them."
    return figure(name, lambda ax: plots.kept_by_seeds(plans, ax), words)
