"""Runs of one family: how fast each of their models is, and what that cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..runs.reader import Recorded, entries, measured_pairs, measured_speedup


@dataclass(frozen=True)
class SpeedOfRun:
    """The models of one entry that were to be equally fast, over seeds."""

    entry: str
    method: str
    speed: float
    """Measured; the mean over seeds."""
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def speeds_of_run(run: Recorded) -> list[tuple[float, float, float]]:
    """(requested and measured speed-up, metric) of every model that a run left and that was timed, slowest first."""
    several = [(point.asked, point.measured, point.value) for point in run.speeds]
    if not several:
        several = [(0.0, measured_speedup(run.bench), run.metrics.get("value"))]
    return sorted(
        (requested, speed, value) for requested, speed, value in several if speed is not None and value is not None
    )


def family(runs: Sequence[Recorded]) -> list[SpeedOfRun]:
    """The models of several runs, slowest first; those of one entry with different seeds together."""
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    methods: dict[str, str] = {}
    for entry, run in zip(entries(runs), runs, strict=True):
        methods[entry] = run.method
        for requested, speed, value in speeds_of_run(run):
            found.setdefault((entry, requested), []).append((speed, value))
    points = [
        SpeedOfRun(entry, methods[entry], statistics.fmean(speed for speed, _ in here), tuple(v for _, v in here))
        for (entry, _), here in found.items()
    ]
    return sorted(points, key=lambda point: point.speed)


def dense_values(runs: Sequence[Recorded]) -> dict[str, float]:
    """The metric of dense models by the run's directory: of runs without a method, or else what others measured."""
    plain = {str(run.path): float(run.metrics["value"]) for run in runs if run.method == "none" and run.metrics}
    return plain or {str(run.path): float(run.before["value"]) for run in runs if run.before}


def settings_of(runs: Sequence[Recorded]) -> list[str]:
    """The settings in which these runs were timed: figures are comparable where there is one."""
    rows = [after for run in runs for _, after in measured_pairs(run.bench)[:1]]
    names = ("{batch} x {length} tokens, {device}, {dtype}, {backend}".format(**row) for row in rows)
    return list(dict.fromkeys(names))
