"""The runs of a comparison as points: what was set, what was removed, how good it was."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
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
        results = _file(Path(results))
    if isinstance(results, Mapping):
        metric, baseline = str(results["metric"]), results.get("baseline")
        runs = [run for run in results["runs"] if run.get("error") is None]
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


def _file(path: Path) -> Mapping[str, Any]:
    path = path / RESULTS if path.is_dir() else path
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "runs" not in data or "metric" not in data:
            raise ValueError("it has no runs")
    except (OSError, ValueError, TypeError) as error:
        raise AttentrimError(f"{path} is not the result of a comparison: {error}.") from error
    return dict(data)


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
            statistics.fmean(float(run["sparsity"] or 0) for run in found),
            statistics.fmean(_gone(run) for run in found),
        )
        for name, found in by_name.items()
    )


def _gone(run: Mapping[str, Any]) -> float:
    if not run.get("heads_total"):
        return float(run["sparsity"] or 0)
    return 1 - float(sum(run["heads_kept"])) / float(run["heads_total"])
