"""The page about several runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..plots.families import family
from ..plots.points import RESULTS, Points, read_points, read_results
from ..runs.reader import Recorded, entries
from ..version import __version__
from .compared import Compared
from .comparison_figures import comparison_figures, head_maps
from .comparison_tables import runs_table, settings_tables, summary_table
from .render import render

FEW = 3
ALIKE = ("task", "train_file", "dataset", "model", "learning_rate", "per_device_train_batch_size")
"""Settings in which runs must agree for their difference to be that of their methods."""


def comparison_page(runs: Sequence[Recorded], compared: Path | None) -> str:
    """`compared`: the directory of `attentrim compare` that all of the runs are from."""
    missing: list[str] = []
    results = _results(compared, missing) if compared else None
    entered = [Compared(name, run) for name, run in zip(entries(runs), runs, strict=True)]
    ended = [one for one in entered if one.run.metrics]
    points, reason = _points(results, runs)
    missing += _missing(entered)
    failed = [run for run in (results or {}).get("runs", []) if run.get("error")]
    titles = dict.fromkeys(f"{one.run.model} on {one.run.data}" for one in ended)
    return render(
        "comparison.html",
        version=__version__,
        title=f"{' and '.join(titles) or 'Several runs'}: {len(runs)} runs compared",
        about=(results or {}).get("about") or "",
        lead=reason if points is None else _lead(points, ended, results),
        missing=[f"{run['name']}, seed {run.get('seed')} failed: {run['error']}" for run in failed] + missing,
        summary=None if points is None else summary_table(points, results or {}, _speeds(ended)),
        runs=runs_table(entered),
        figures=[] if points is None else comparison_figures(points, ended, results or runs),
        maps=head_maps(ended),
        settings=settings_tables(entered),
        command=shlex.join(["attentrim", "report", *(f"--run={place}" for place in _places(runs, compared))]),
    )


def _speeds(ended: Sequence[Compared]) -> dict[str, float]:
    """By entry, how fast its model is; of several that a training left, the fastest."""
    return {point.entry: point.speed for point in family([one.run for one in ended])}


def _results(directory: Path, missing: list[str]) -> dict[str, Any] | None:
    """What the comparison found; None, and why, where it was stopped before it wrote that."""
    try:
        return read_results(directory)
    except AttentrimError:
        missing.append(f"There is no readable {RESULTS}: the comparison has not finished.")
        return None


def _points(results: Mapping[str, Any] | None, runs: Sequence[Recorded]) -> tuple[Points | None, str]:
    """The runs as points, or why they cannot be compared."""
    tasks = dict.fromkeys(run.task for run in runs if run.metrics)
    if len(tasks) > 1:
        return None, f"These runs are of different tasks ({', '.join(tasks)}): their results cannot be compared."
    try:
        points = read_points(results or runs)
    except AttentrimError as error:
        return None, str(error)
    return (points, "") if points.points else (None, "None of these runs has a result.")


def _places(runs: Sequence[Recorded], compared: Path | None) -> list[str]:
    return [str(compared)] if compared else [str(run.path) for run in runs]


def _missing(entered: Sequence[Compared]) -> list[str]:
    """Each sentence once, with the runs that it is true of."""
    found: dict[str, list[str]] = {}
    for one in entered:
        for sentence in one.run.missing:
            found.setdefault(sentence, []).append(one.label)
    return [
        f"{sentence} ({'; '.join(labels) if len(labels) <= FEW else f'{len(labels)} of {len(entered)} runs'})"
        for sentence, labels in found.items()
    ]


def _lead(points: Points, ended: Sequence[Compared], results: Mapping[str, Any] | None) -> str:
    """What a reader takes away; `results` are those of a comparison, whose runs are trained alike."""
    best = (max if points.higher_is_better else min)(points.points, key=lambda point: point.mean)
    text = f"The best {points.metric} is {best.mean:.4f}, by {best.name}"
    text += f" ({best.gone:.0%} of the {points.gone_means})." if best.gone else "."
    base = points.base
    if base is not None and base is not best:
        text += f" The baseline, {base.name}, has {base.mean:.4f}."
        text += _significance(best.name, results or {})
    few = min(len(point.values) for point in points.points)
    if few < 3:
        text += f" With {few} seed{'s' * (few > 1)} a difference may be chance."
    differing = _unlike(ended) if results is None else []
    if differing:
        differ = "differs" if len(differing) == 1 else "differ"
        text += f" The runs were not trained alike ({', '.join(differing)} {differ}): this compares runs, not methods."
    return text


def _significance(name: str, results: Mapping[str, Any]) -> str:
    """Whether the difference of an entry to the baseline may be chance."""
    interval = next((entry.get("interval") for entry in results.get("summary", []) if entry["name"] == name), None)
    if not interval:
        return ""
    chance = "may be chance" if interval[0] <= 0 <= interval[1] else "is more than chance"
    return f" The difference {chance}: its 95% interval is {interval[0]:+.4f} to {interval[1]:+.4f}."


def _unlike(ended: Sequence[Compared]) -> list[str]:
    """In what the training of runs differs, beside the method."""
    found = [name for name in ALIKE if len({str(one.run.config.get(name)) for one in ended if one.run.config}) > 1]
    return [*found, *(["steps"] if len({one.run.last_step for one in ended}) > 1 else [])]
