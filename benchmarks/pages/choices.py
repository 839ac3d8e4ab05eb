"""What training data that was held out chooses: a row and an epoch, of several that were tried alike."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import formats
from .compared import mean_of_tasks, raw_links
from .raw import Place, Row, by_task

NOTE = "The row and the epoch of each way are those that are best on held-out training data, by the mean over seeds"


@dataclass(frozen=True)
class Choice:
    """A row at an epoch, and its metric on dev there, by seed."""

    row: str
    epoch: float
    values: dict[int, float]


def choose(place: Place, names: Sequence[str]) -> Choice | None:
    """The best on held-out data of all epochs of these rows, by the seeds that all of them have; the first of equals.

    None where no row was run with `holdout_curve`.
    """
    rows = [place.rows[name] for name in names if name in place.rows]
    curves = {row.name: found for row in rows if (found := _curves(row))}
    if not curves:
        return None
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in curves.values())))
    best, chosen = float("-inf"), None
    for name, by_seed in curves.items():
        for points in zip(*(by_seed[seed] for seed in seeds), strict=True):
            held_out = statistics.fmean(point["held_out"] for point in points)
            if held_out > best:
                values = {seed: point["value"] for seed, point in zip(seeds, points, strict=True)}
                best, chosen = held_out, Choice(name, points[0]["epoch"], values)
    return chosen


def _curves(row: Row) -> dict[int, list[dict[str, float]]]:
    """By seed, what each evaluation found, where it looked at held-out data too."""
    found = {seed: run.get("epochs") or [] for seed, run in row.runs.items()}
    return {seed: points for seed, points in found.items() if points and all("held_out" in one for one in points)}


def chosen(page: Path, words: Sequence[str], options: dict[str, str]) -> str:
    """`chosen: PLACE ...`, then lines `WAY: ROW ...`: the best of each way's rows and epochs, against the first's."""
    tasks = by_task(words)
    found = {way: [choose(places[0], names.split()) for places in tasks.values()] for way, names in options.items()}
    base = next(iter(found.values()))
    lines = []
    for way, choices in found.items():
        if not all(choices):
            continue
        pairs = [_paired(one, other) for one, other in zip(choices, base, strict=True)]
        cells = [formats.mean_and_spread(list(one.values.values())) for one in choices if one]
        if choices is not base:
            cells = [f"{cell}, {formats.difference(list(by.values()))}" for cell, by in zip(cells, pairs, strict=True)]
        where = [f"`{one.row}`, epoch {one.epoch:g}" for one in choices if one]
        mean = "" if choices is base else mean_of_tasks(pairs)
        lines.append([way, *cells, mean, "; ".join(where), formats.counted([len(by) for by in pairs])])
    header = ["way", *map(formats.task_name, tasks), "mean of the differences", "chosen", "seeds"]
    against = next(iter(options))
    note = f"{NOTE}; values are of dev, differences to {against} by seed."
    return f"{formats.table(header, lines)}\n{note} {raw_links(page, tasks)}\n"


def _paired(one: Choice | None, other: Choice | None) -> dict[int, float]:
    if one is None or other is None:
        return {}
    return {seed: value - other.values[seed] for seed, value in one.values.items() if seed in other.values}
