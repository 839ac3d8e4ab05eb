"""What was measured, as it lies under benchmarks/results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent
RESULTS = BENCHMARKS / "results"


@dataclass(frozen=True)
class Row:
    """The runs of one entry of an experiment, by seed."""

    name: str
    runs: dict[int, dict[str, Any]]
    share: float = 1.0
    """Of the training that was over when this model was saved: one training can leave models of several speeds."""
    asked: float | None = None

    @property
    def values(self) -> dict[int, float]:
        return {seed: run["value"] for seed, run in self.runs.items()}

    def metric(self, name: str) -> dict[int, float]:
        return {seed: run["metrics"][name] for seed, run in self.runs.items() if name in run.get("metrics", {})}

    @property
    def is_last(self) -> bool:
        """Whether sizes in the file are of this model: they are of the last one that a training left."""
        return self.share == 1


@dataclass(frozen=True)
class Place:
    """One file of keep.py, named EXPERIMENT/MODEL-TASK."""

    name: str
    data: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, name: str) -> Place:
        return cls(name, read(f"{name}.json"))

    @property
    def experiment(self) -> str:
        return self.name.partition("/")[0]

    @property
    def model(self) -> str:
        return str(self.data["model"])

    @property
    def task(self) -> str:
        return str(self.data["task"])

    @property
    def metric(self) -> str:
        return str(self.data["metric"])

    @property
    def baseline(self) -> str | None:
        return self.data["baseline"]

    @cached_property
    def rows(self) -> dict[str, Row]:
        """In the order of the file. A training that left several speeds gives one row for each: NAME@SPEED."""
        found: dict[str, Row] = {}
        for run in self.data["runs"]:
            speeds = run.get("speeds") or []
            if len(speeds) < 2:
                found.setdefault(run["name"], Row(run["name"], {})).runs[run["seed"]] = run
            for place, speed in enumerate(speeds if len(speeds) > 1 else [], 1):
                name = f"{run['name']}@{speed['asked']:g}"
                row = found.setdefault(name, Row(name, {}, place / len(speeds), speed["asked"]))
                row.runs[run["seed"]] = {**run, **{key: speed[key] for key in ("value", "metrics") if key in speed}}
        return found


def read(path: str) -> Any:
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def find(places: Sequence[Place], row: str) -> Place | None:
    """The first of several experiments on one task that has run this row."""
    return next((place for place in places if row in place.rows), None)


def by_task(names: Sequence[str]) -> dict[str, list[Place]]:
    """A column for each task that has a file. Other data than a task's own ("wnut17_20") is a column of its own."""
    tasks: dict[str, list[Place]] = {}
    for name in names:
        if not (BENCHMARKS / name.partition("/")[0] / "config.yaml").is_file():
            raise FileNotFoundError(f"{name}: there is no such experiment")
        if (RESULTS / f"{name}.json").is_file():
            tasks.setdefault(name.rpartition("-")[2], []).append(Place.read(name))
    return tasks


def paired(places: Sequence[Place], row: str, other: str) -> dict[int, float]:
    """Differences by seed; both rows may be of different experiments on the same task."""
    there = find(places, row)
    if there is None:
        return {}
    against = there if other in there.rows else find(places, other)
    base = against.rows[other].values if against else {}
    return {seed: value - base[seed] for seed, value in there.rows[row].values.items() if seed in base}
