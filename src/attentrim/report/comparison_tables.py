"""The tables of the page about several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..plots.points import Points
from ..runs.headline import times
from ..runs.reader import measured_pairs
from . import removals
from .compared import Compared
from .figures import Numbers, short

SAME_BY_NATURE = ("output_dir", "seed", "data_seed", "no_bench")
"""Settings that differ between runs without meaning anything."""


def summary_table(points: Points, whole: Mapping[str, Any], speeds: Mapping[str, float]) -> Numbers:
    """One row per entry, over its seeds; with the paired differences where a comparison has them, and speeds."""
    differences = {entry["name"]: entry for entry in whole.get("summary", [])}
    rows = []
    for point in points.points:
        known = differences.get(point.name, {})
        interval = known.get("interval")
        rows.append(
            [
                point.name,
                f"{point.mean:.4f}" + (f" ± {point.sd:.4f}" if len(point.values) > 1 else ""),
                str(len(point.values)),
                f"{point.gone:.1%}",
                times(speeds[point.name]) if point.name in speeds else "",
                "" if known.get("difference") is None else f"{known['difference']:+.4f}",
                _interval(known.get("difference"), interval),
            ]
        )
    names = ["run", f"{points.metric} (mean ± sd)", "seeds", points.gone_means, "measured speed-up"]
    names += [f"against {points.baseline}", "95% interval"]
    shown = [number for number in range(len(names)) if number < 4 or any(row[number] for row in rows)]
    return Numbers([names[number] for number in shown], [[row[number] for number in shown] for row in rows])


def _interval(difference: float | None, interval: Sequence[float] | None) -> str:
    if not interval:
        return "" if difference is None else "needs 2 seeds"
    return f"{interval[0]:+.4f} to {interval[1]:+.4f}"


def runs_table(entered: Sequence[Compared]) -> Numbers:
    """One row per run."""
    kinds = removals.columns([one.run for one in entered])
    names = ["run", "method", "seed", "data", "metric", "value", *kinds]
    names += ["parameters", "times as fast", "steps", "seconds"]
    return Numbers(names, [_row(one, kinds) for one in entered])


def _row(one: Compared, kinds: Sequence[str]) -> list[str]:
    run, metrics = one.run, one.run.metrics
    pairs = measured_pairs(run.bench)
    return [
        one.label,
        run.method,
        "" if run.seed is None else str(run.seed),
        run.data,
        str(metrics.get("metric", "")),
        f"{metrics['value']:.4f}" if metrics else "no result",
        *removals.cells(run, kinds),
        f"{metrics['parameters']:,}" if "parameters" in metrics else "",
        f"{pairs[0][1]['speedup']:.2f}" if pairs else "",
        str(run.last_step) if run.history else "",
        short(round(metrics["train_seconds"])) if "train_seconds" in metrics else "",
    ]


def settings_tables(entered: Sequence[Compared]) -> tuple[Numbers | None, Numbers | None]:
    """What was set differently, one column per entry; and what only one of them has."""
    flat = {one.entry: _flat(one.run.config) for one in entered if one.run.config}
    names = dict.fromkeys(name for settings in flat.values() for name in settings if name not in SAME_BY_NATURE)
    differing = [name for name in names if len({settings.get(name) for settings in flat.values()}) > 1]
    shared = [name for name in differing if sum(name in settings for settings in flat.values()) > 1]

    def table(wanted: Sequence[str]) -> Numbers | None:
        rows = [[name, *(settings.get(name, "-") for settings in flat.values())] for name in wanted]
        return Numbers(["", *flat], rows) if rows else None

    return table(shared), table([name for name in differing if name not in shared])


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    found = {name: str(value) for name, value in config.items() if name != "method_config"}
    method = config.get("method_config") or {}
    return found | {f"{name} (method)": "not set" if value is None else str(value) for name, value in method.items()}
