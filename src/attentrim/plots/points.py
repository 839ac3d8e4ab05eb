"""The runs of a comparison as points: what was set, what was removed, how good it was."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..recorded import Recorded, as_run

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

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Points:
    metric: str
    baseline: str | None
    points: tuple[Point, ...]


def read_points(results: Results) -> Points:
    if isinstance(results, str | Path):
        results = _file(Path(results))
    if isinstance(results, Mapping):
        runs = [run for run in results["runs"] if run.get("error") is None]
        return Points(str(results["metric"]), results.get("baseline"), _gathered(runs))
    found = [as_run(run) for run in results]
    runs = [_of_run(run) for run in found if "value" in run.metrics]
    metric = next((str(run.metrics["metric"]) for run in found if run.metrics), "metric")
    baseline = next((run["name"] for run in runs if run["settings"]["method"] == "none"), None)
    return Points(metric, baseline, _gathered(runs))


def _file(path: Path) -> Mapping[str, Any]:
    path = path / RESULTS if path.is_dir() else path
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if "runs" not in data or "metric" not in data:
            raise ValueError("it has no runs")
    except (OSError, ValueError, TypeError) as error:
        raise AttentrimError(f"{path} is not the result of a comparison: {error}.") from error
    return dict(data)


def _of_run(run: Recorded) -> dict[str, Any]:
    settings = {**run.config, "method": run.method}
    return {
        "name": run.entry,
        "settings": settings,
        "value": run.metrics["value"],
        "sparsity": run.metrics.get("sparsity", 0.0),
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
            statistics.fmean(float(run["sparsity"]) for run in found),
        )
        for name, found in by_name.items()
    )
