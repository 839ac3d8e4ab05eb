"""The runs of a comparison as points: what was set, what was removed, how good it was."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..guarded import is_number, read_json
from ..runs.reader import Recorded, as_run, entries
from ..tasks.metrics import LOWER_IS_BETTER

RESULTS = "results.json"
Results = str | Path | Mapping[str, Any] | Iterable[str | Path | Recorded]
"""A directory of `compare` or its results.json, that file's content, or runs."""


@dataclass(frozen=True)
class Point:
    """One entry of a comparison, over its seeds."""

    name: str
    method: str
    settings: Mapping[str, Any]
    values: tuple[float, ...]
    sparsity: float
    """The share of heads removed; those of uniform sites do not count."""
    gone: float
    """The share of heads that do not attend any more: removed, or of a uniform site."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Points:
    metric: str
    higher_is_better: bool
    baseline: str | None
    points: tuple[Point, ...]

    @property
    def gone_means(self) -> str:
        """What `gone` counts in these runs."""
        uniform = any(point.gone > point.sparsity + 1e-9 for point in self.points)
        return "heads removed or in uniform sites" if uniform else "heads removed"

    @property
    def base(self) -> Point | None:
        return next((point for point in self.points if point.name == self.baseline), None)


def read_points(results: Results) -> Points:
    if isinstance(results, str | Path):
        results = read_results(results)
    if isinstance(results, Mapping):
        metric, baseline = str(results["metric"]), results.get("baseline")
        runs = [run for run in results["runs"] if run.get("error") is None and run.get("value") is not None]
    else:
        found = [as_run(run) for run in results]
        named = [(name, run) for name, run in zip(entries(found), found, strict=True) if run.metrics]
        metrics = sorted({str(run.metrics["metric"]) for _, run in named})
        if len(metrics) > 1:
            raise AttentrimError(f"These runs cannot be compared: they are measured by {' and '.join(metrics)}.")
        metric = metrics[0] if metrics else "metric"
        runs = [_of_run(name, run) for name, run in named]
        baseline = next((run["name"] for run in runs if run["settings"]["method"] == "none"), None)
    return Points(metric, metric not in (*LOWER_IS_BETTER, "loss"), baseline, _gathered(runs))


def read_results(path: str | Path) -> dict[str, Any]:
    """What a comparison wrote; raises where it is something else, or damaged."""
    file = Path(path) / RESULTS if Path(path).is_dir() else Path(path)
    data = _without_nan(read_json(file, "the results", follow=not Path(path).is_dir()))
    wrong = _wrong(data)
    if wrong:
        raise AttentrimError(f"{file} is not the result of a comparison: {wrong}.")
    return dict(data)


def _without_nan(data: Any) -> Any:
    """None for what is no number: a run that diverged does not take the others with it."""
    if isinstance(data, dict):
        return {key: _without_nan(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_nan(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _wrong(data: Any) -> str:
    """What is not as a comparison writes it; empty where all is."""
    if not isinstance(data, dict) or not isinstance(data.get("metric"), str):
        return "it names no metric"
    for name in ("about", "baseline"):
        if not isinstance(data.get(name) or "", str):
            return f"{name!r} is not text"
    for name, fits in (("runs", _is_run), ("summary", _is_summary)):
        found = data.get(name, [])
        if not isinstance(found, list) or not all(map(fits, found)):
            return f"one of its {name!r} is damaged"
    return "" if "runs" in data else "it has no runs"


def _is_run(run: Any) -> bool:
    if not isinstance(run, dict) or not isinstance(run.get("name"), str):
        return False
    if run.get("error") is not None:
        return isinstance(run["error"], str)
    heads = run.get("heads_kept") or []
    settings = run.get("settings")
    return (
        (run.get("value") is None or is_number(run["value"]))
        and isinstance(run.get("seed", 0), int)
        and isinstance(settings, dict)
        and isinstance(settings.get("method_config") or {}, dict)
        and is_number(run.get("sparsity") or 0)
        and is_number(run.get("heads_total") or 0)
        and isinstance(heads, list)
        and all(map(is_number, heads))
    )


def _is_summary(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return False
    interval = entry.get("interval") or [0, 0]
    numbers = isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval))
    return numbers and is_number(entry.get("difference") or 0)


def _of_run(name: str, run: Recorded) -> dict[str, Any]:
    known = ("value", "sparsity", "heads_total", "heads_kept")
    return {
        "name": name,
        "settings": {**run.config, "method": run.method},
        **{key: run.metrics.get(key) for key in known},
    }


def _gathered(runs: Iterable[Mapping[str, Any]]) -> tuple[Point, ...]:
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_name.setdefault(str(run["name"]), []).append(run)
    return tuple(
        Point(
            name,
            str(found[0]["settings"].get("method", name)),
            {**found[0]["settings"], **(found[0]["settings"].get("method_config") or {})},
            tuple(float(run["value"]) for run in found),
            statistics.fmean(float(run.get("sparsity") or 0) for run in found),
            statistics.fmean(_gone(run) for run in found),
        )
        for name, found in by_name.items()
    )


def _gone(run: Mapping[str, Any]) -> float:
    if not run.get("heads_total") or not run.get("heads_kept"):
        return float(run.get("sparsity") or 0)
    return 1 - float(sum(run["heads_kept"])) / float(run["heads_total"])
