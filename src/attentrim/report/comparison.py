"""The page about several runs."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import plots
from ..bench.rows import measured_pairs
from ..errors import AttentrimError
from ..plots.points import RESULTS, Points, read_points
from ..recorded import Recorded, entries
from ..version import __version__
from .figures import Figure, Numbers, figure, present, short
from .render import render

MOST_LINES, MOST_MAPS, FEW = 8, 24, 3
SAME_BY_NATURE = ("output_dir", "seed", "data_seed", "no_bench")
"""Settings that tell runs apart without saying anything."""
ALIKE = ("task", "train_file", "dataset", "model", "learning_rate", "per_device_train_batch_size")
"""Settings in which runs must agree for their difference to be that of their methods."""
COLUMNS = (
    *("run", "method", "seed", "task", "metric", "value", "heads kept", "uniform layers"),
    *("parameters", "times as fast", "steps", "seconds"),
)


@dataclass(frozen=True)
class Compared:
    """A run under the name that it has among others."""

    entry: str
    run: Recorded

    @property
    def label(self) -> str:
        place = self.run.path.resolve().name
        return f"{self.entry}, {place}" if place.startswith("seed-") else self.entry


def comparison_page(runs: Sequence[Recorded], compared: Path | None) -> str:
    """`compared`: the directory of `attentrim compare` that all of the runs are from."""
    missing: list[str] = []
    results = _results(compared, missing) if compared else None
    entered = [Compared(name, run) for name, run in zip(entries(runs), runs, strict=True)]
    ended = [one for one in entered if one.run.metrics]
    points, reason = _points(results, runs)
    missing += _missing(entered)
    failed = [run for run in (results or {}).get("runs", []) if run["error"]]
    titles = dict.fromkeys(f"{one.run.model} on {one.run.task}" for one in ended)
    return render(
        "comparison.html",
        version=__version__,
        title=f"{' and '.join(titles) or 'Several runs'}: {len(runs)} runs compared",
        about=(results or {}).get("about") or "",
        lead=reason if points is None else _lead(points, ended, results),
        missing=[f"{run['name']}, seed {run['seed']} failed: {run['error']}" for run in failed] + missing,
        summary=None if points is None else _summary(points, results or {}),
        columns=COLUMNS,
        rows=[_row(one) for one in entered],
        figures=[] if points is None else _figures(points, ended, results or runs),
        maps=_maps(ended),
        settings=_settings(entered),
        command=shlex.join(["attentrim", "report", *(f"--run={place}" for place in _places(runs, compared))]),
    )


def _results(directory: Path, missing: list[str]) -> dict[str, Any] | None:
    """What the comparison found; None, and why, where it was stopped before it wrote that."""
    try:
        return dict(json.loads((directory / RESULTS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        missing.append(f"There is no {RESULTS} that can be read: the comparison has not ended.")
        return None


def _points(results: Mapping[str, Any] | None, runs: Sequence[Recorded]) -> tuple[Points | None, str]:
    """The runs as points, or why they cannot be compared."""
    tasks = dict.fromkeys(run.task for run in runs if run.metrics)
    if len(tasks) > 1:
        return None, f"These runs are of different tasks ({', '.join(tasks)}): their figures are not for comparing."
    try:
        points = read_points(results or runs)
    except AttentrimError as error:
        return None, str(error)
    return (points, "") if points.points else (None, "None of these runs has a result.")


def _places(runs: Sequence[Recorded], compared: Path | None) -> list[str]:
    return [str(compared)] if compared else [str(run.path) for run in runs]


def _missing(entered: Sequence[Compared]) -> list[str]:
    """Each sentence once, with those that it is said of."""
    said: dict[str, list[str]] = {}
    for one in entered:
        for sentence in one.run.missing:
            said.setdefault(sentence, []).append(one.label)
    return [
        f"{sentence} ({'; '.join(labels) if len(labels) <= FEW else f'{len(labels)} of {len(entered)} runs'})"
        for sentence, labels in said.items()
    ]


def _lead(points: Points, ended: Sequence[Compared], results: Mapping[str, Any] | None) -> str:
    """What a reader takes away; `results` are those of a comparison, whose runs are trained alike."""
    best = (max if points.higher_is_better else min)(points.points, key=lambda point: point.mean)
    text = f"The best {points.metric} is {best.mean:.4f}, by {best.name}"
    text += f" ({best.gone:.0%} of the heads gone)." if best.gone else "."
    base = points.base
    if base is not None and base is not best:
        text += f" The baseline, {base.name}, has {base.mean:.4f}."
        text += _worth(best.name, results or {})
    few = min(len(point.values) for point in points.points)
    if few < 3:
        text += f" With {few} seed{'s' * (few > 1)} a difference may be chance."
    differing = _unlike(ended) if results is None else []
    if differing:
        text += f" The runs were not trained alike ({', '.join(differing)} differ): this compares runs, not methods."
    return text


def _worth(name: str, results: Mapping[str, Any]) -> str:
    """What the difference of an entry to the baseline is worth."""
    interval = next((entry.get("interval") for entry in results.get("summary", []) if entry["name"] == name), None)
    if not interval:
        return ""
    chance = "may be chance" if interval[0] <= 0 <= interval[1] else "is more than chance"
    return f" The difference {chance}: its 95% interval is {interval[0]:+.4f} to {interval[1]:+.4f}."


def _unlike(ended: Sequence[Compared]) -> list[str]:
    """In what the training of runs differs, beside the method."""
    found = [name for name in ALIKE if len({str(one.run.config.get(name)) for one in ended if one.run.config}) > 1]
    return [*found, *(["steps"] if len({one.run.last_step for one in ended}) > 1 else [])]


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
                f"{point.gone:.1%}",
                "" if known.get("difference") is None else f"{known['difference']:+.4f}",
                "" if not interval else f"{interval[0]:+.4f} to {interval[1]:+.4f}",
            ]
        )
    names = ["run", f"{points.metric} (mean ± sd)", "seeds", "heads gone"]
    if any(row[4] for row in rows):
        return Numbers([*names, f"against {points.baseline}", "95% interval"], rows)
    return Numbers(names, [row[:4] for row in rows])


def _row(one: Compared) -> list[str]:
    run, metrics = one.run, one.run.metrics
    pairs = measured_pairs(run.bench)
    return [
        one.label,
        run.method,
        "" if run.seed is None else str(run.seed),
        run.task,
        str(metrics.get("metric", "")),
        f"{metrics['value']:.4f}" if metrics else "no result",
        f"{sum(run.plan.heads_kept)} of {run.plan.heads_total}" if run.plan is not None else "",
        str(len(run.plan.uniform)) if run.plan is not None else "",
        f"{metrics['parameters']:,}" if "parameters" in metrics else "",
        f"{pairs[0][1]['speedup']:.2f}" if pairs else "",
        str(run.last_step) if run.history else "",
        short(round(metrics["train_seconds"])) if "train_seconds" in metrics else "",
    ]


def _figures(points: Points, ended: Sequence[Compared], source: Any) -> list[Figure]:
    return present([_against_sparsity(points, source), _by_epoch(ended), *_sweeps(points, source)])


def _against_sparsity(points: Points, source: Any) -> Figure | None:
    if not any(point.gone for point in points.points):
        return None
    ordered = sorted(points.points, key=lambda point: point.gone)
    words = "; ".join(f"{point.name}: {point.mean:.4f} with {point.gone:.0%} gone" for point in ordered) + "."
    rows = [[point.name, f"{point.gone:.1%}", f"{point.mean:.4f}", f"{point.sd:.4f}"] for point in ordered]
    numbers = Numbers(["run", "heads gone", points.metric, "sd"], rows)
    title = f"{points.metric} against heads removed"
    return figure(title, lambda ax: plots.metric_against_sparsity(source, ax), words, numbers)


def _by_epoch(ended: Sequence[Compared]) -> Figure | None:
    """One line an entry, that of its first seed."""
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
    found = []
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
        if len(values) < 3 or len(others) > 1 or name == "target_sparsity":
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


def _maps(ended: Sequence[Compared]) -> list[Figure]:
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


def _settings(entered: Sequence[Compared]) -> tuple[Numbers | None, Numbers | None]:
    """What was set differently, one column an entry; and what only one of them has."""
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
