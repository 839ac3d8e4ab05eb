"""The page about several runs."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__, plots
from ..bench.rows import measured_pairs
from ..plots.points import RESULTS, Points, read_points
from ..recorded import Recorded
from .figures import Figure, Numbers, figure, present, short
from .render import render

MOST_LINES, MOST_MAPS = 8, 24
SAME_BY_NATURE = ("output_dir", "seed", "data_seed", "no_bench")
"""Settings that tell runs apart without saying anything."""


def comparison_page(runs: Sequence[Recorded], compared: Path | None) -> str:
    """`compared`: the directory of `attentrim compare` that all of the runs are from."""
    results = _results(compared) if compared else None
    points = read_points(results or runs)
    whole: Mapping[str, Any] = results or {}
    title = " and ".join(dict.fromkeys(f"{run.model} on {run.task}" for run in runs if run.metrics)) or "Several runs"
    ended = [run for run in runs if run.metrics]
    return render(
        "comparison.html",
        version=__version__,
        title=f"{title}: {len(runs)} runs compared",
        about=whole.get("about") or "",
        lead=_lead(points, ended, whole),
        missing=[f"{_label(run)}: {sentence}" for run in runs for sentence in run.missing]
        + [
            f"{run['name']}, seed {run['seed']} failed: {run['error']}"
            for run in whole.get("runs", [])
            if run["error"]
        ],
        summary=_summary(points, whole),
        columns=COLUMNS,
        rows=[_row(run) for run in runs],
        figures=_figures(points, ended, results or runs),
        maps=_maps(ended),
        settings=_settings(runs),
        command=shlex.join(["attentrim", "report", *(f"--run={run}" for run in _named(runs, compared))]),
    )


def _results(directory: Path) -> dict[str, Any]:
    return dict(json.loads((directory / RESULTS).read_text(encoding="utf-8")))


def _named(runs: Sequence[Recorded], compared: Path | None) -> list[str]:
    return [str(compared)] if compared else [str(run.path) for run in runs]


def _label(run: Recorded) -> str:
    return run.entry if run.entry == run.path.resolve().name else f"{run.entry}, {run.path.resolve().name}"


def _lead(points: Points, ended: Sequence[Recorded], whole: Mapping[str, Any]) -> str:
    if not points.points:
        return "None of these runs has a result."
    higher = whole.get("higher_is_better", True)
    best = (max if higher else min)(points.points, key=lambda point: point.mean)
    text = f"The best {points.metric} is {best.mean:.4f}, by {best.name}"
    text += f" ({best.sparsity:.0%} of the heads removed)." if best.sparsity else "."
    base = next((point for point in points.points if point.name == points.baseline), None)
    if base is not None and base is not best:
        text += f" {base.name}, with all heads, has {base.mean:.4f}."
    few = min(len(point.values) for point in points.points)
    if few < 3:
        text += f" With {few} seed{'s' * (few > 1)} a difference may be chance."
    return text


def _summary(points: Points, whole: Mapping[str, Any]) -> Numbers:
    """One row an entry, over its seeds; with the paired differences where a comparison has them."""
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
                f"{point.sparsity:.1%}",
                "" if known.get("difference") is None else f"{known['difference']:+.4f}",
                "" if not interval else f"{interval[0]:+.4f} to {interval[1]:+.4f}",
            ]
        )
    names = ["run", f"{points.metric} (mean ± sd)", "seeds", "heads removed"]
    if any(row[4] for row in rows):
        return Numbers([*names, f"against {points.baseline}", "95% interval"], rows)
    return Numbers(names, [row[:4] for row in rows])


COLUMNS = (
    "run",
    "method",
    "seed",
    "metric",
    "value",
    "heads kept",
    "uniform",
    "parameters",
    "times as fast",
    "seconds",
)


def _row(run: Recorded) -> list[str]:
    metrics = run.metrics
    pairs = measured_pairs(run.bench)
    return [
        _label(run),
        run.method,
        "" if run.seed is None else str(run.seed),
        str(metrics.get("metric", "")),
        f"{metrics['value']:.4f}" if metrics else "no result",
        f"{sum(run.plan.heads_kept)} of {run.plan.heads_total}" if run.plan is not None else "",
        str(len(run.plan.uniform)) if run.plan is not None else "",
        f"{metrics['parameters']:,}" if "parameters" in metrics else "",
        f"{pairs[0][1]['speedup']:.2f}" if pairs else "",
        short(round(metrics["train_seconds"])) if "train_seconds" in metrics else "",
    ]


def _figures(points: Points, ended: Sequence[Recorded], source: Any) -> list[Figure]:
    return present([_against_sparsity(points, source), _by_epoch(ended), *_sweeps(points, source)])


def _against_sparsity(points: Points, source: Any) -> Figure | None:
    if not any(point.sparsity for point in points.points):
        return None
    ordered = sorted(points.points, key=lambda point: point.sparsity)
    words = "; ".join(f"{point.name}: {point.mean:.4f} with {point.sparsity:.0%} removed" for point in ordered) + "."
    rows = [[point.name, f"{point.sparsity:.1%}", f"{point.mean:.4f}", f"{point.sd:.4f}"] for point in ordered]
    numbers = Numbers(["run", "heads removed", points.metric, "sd"], rows)
    title = f"{points.metric} against heads removed"
    return figure(title, lambda ax: plots.metric_against_sparsity(source, ax), words, numbers)


def _by_epoch(ended: Sequence[Recorded]) -> Figure | None:
    """One line an entry, that of its first seed."""
    firsts: dict[str, Recorded] = {}
    for run in ended:
        metric = run.metrics["metric"]
        if run.curve(f"eval_{metric}")[0] and (run.entry not in firsts):
            firsts[run.entry] = run
    shown = dict(list(firsts.items())[:MOST_LINES])
    if not shown or len({run.metrics["metric"] for run in shown.values()}) > 1:
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
    found = []
    methods = {point.method for point in points.points}
    names = dict.fromkeys(name for point in points.points for name in (point.settings.get("method_config") or {}))
    for name in names:
        values = {point.settings.get(name) for point in points.points if _is_number(point.settings.get(name))}
        others = {
            json.dumps(
                {key: value for key, value in (point.settings.get("method_config") or {}).items() if key != name}
            )
            for point in points.points
            if _is_number(point.settings.get(name))
        }
        if len(values) < 3 or len(others) > 1 or not methods or name == "target_sparsity":
            continue
        swept = sorted(
            (point for point in points.points if _is_number(point.settings.get(name))),
            key=lambda point: float(point.settings[name]),
        )
        words = "; ".join(
            f"{name} {point.settings[name]}: {point.mean:.4f}, {point.sparsity:.0%} removed" for point in swept
        )
        found.append(figure(f"Sweep over {name}", lambda ax, name=name: plots.sweep(source, name, ax), f"{words}."))  # type: ignore[misc]
    return found


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def _maps(ended: Sequence[Recorded]) -> list[Figure]:
    """The heads that each entry kept, over its seeds."""
    by_entry: dict[str, list[Recorded]] = {}
    for run in ended:
        if run.plan:
            by_entry.setdefault(run.entry, []).append(run)
    return present([_map(name, found) for name, found in list(by_entry.items())[:MOST_MAPS]])


def _map(name: str, runs: Sequence[Recorded]) -> Figure | None:
    plans = [run.plan for run in runs if run.plan]
    kept = [statistics.fmean(column) for column in zip(*(plan.heads_kept for plan in plans), strict=False)]
    words = "Heads kept by site: " + ", ".join(short(count) for count in kept)
    if len(plans) == 1:
        return figure(name, lambda ax: plots.head_map(plans[0], ax), f"{words}.", size=(4.2, 2.6))
    words += f", the mean over {len(plans)} seeds. Darker squares were kept by more of them."
    return figure(name, lambda ax: plots.kept_by_seeds(plans, ax), words, size=(4.2, 2.6))


def _settings(runs: Sequence[Recorded]) -> Numbers | None:
    """What was set differently, one column an entry."""
    flat = {run.entry: _flat(run.config) for run in runs if run.config}
    names = dict.fromkeys(name for settings in flat.values() for name in settings if name not in SAME_BY_NATURE)
    differing = [name for name in names if len({settings.get(name, "") for settings in flat.values()}) > 1]
    if not differing:
        return None
    rows = [[name, *(settings.get(name, "") for settings in flat.values())] for name in differing]
    return Numbers(["", *flat], rows)


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    found = {name: str(value) for name, value in config.items() if name != "method_config"}
    return found | {f"{name} (method)": str(value) for name, value in (config.get("method_config") or {}).items()}
