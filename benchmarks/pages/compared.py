"""Tables of what `attentrim compare` found, as keep.py kept it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from attentrim.compare.config import DEFAULTS
from attentrim.runs.files import read_config

from . import formats, rows
from .raw import BENCHMARKS, RESULTS, Place, Row, by_task, find, paired

FLAGS = (
    *("tf32", "bf16", "use_cpu", "max_train_samples", "max_eval_samples", "num_train_epochs", "max_steps"),
    *("per_device_train_batch_size", "train_file", "validation_file"),
)
"""Those of a command that change results."""


def table(page: Path, words: Sequence[str], options: dict[str, str]) -> str:
    """`results: EXPERIMENT/MODEL-TASK ROW ...`: one experiment, a line for each row, patterns allowed."""
    name, *patterns = words
    place = Place.read(name)
    shown = _chosen(list(place.rows), patterns)
    facts = [rows.facts_of(place, place.rows[row]) for row in shown]
    named = rows.columns(facts)
    more = options.get("metrics", "").split()
    by = formats.scale(place.metric)
    header = [
        *named,
        formats.metric_name(place.metric),
        "difference (95% interval)",
        *map(formats.metric_name, more),
        *("heads removed", "uniform layers", "layers removed", "seeds", "raw name"),
    ]
    lines = []
    for row, fact in zip((place.rows[name] for name in shown), facts, strict=True):
        pairs = list(paired([place], row.name, place.baseline).values()) if place.baseline else []
        lines.append(
            [
                *(fact[column] for column in named),
                formats.mean_and_spread(list(row.values.values()), by),
                "baseline" if row.name == place.baseline else formats.difference(pairs, by),
                *(_metric(row, metric) for metric in more),
                *_removed(row),
                str(len(row.runs)),
                f"`{row.name}`",
            ]
        )
    notes = [f"All rows: {shared}." if (shared := rows.constants(facts)) else "", _source(page, place)]
    return "\n".join([formats.table(header, lines), *filter(None, notes), ""])


def _chosen(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """In the order of the patterns; a row that no run has ended of is left out."""
    found = [name for pattern in patterns for name in names if fnmatchcase(name, pattern)]
    return list(dict.fromkeys(found)) if patterns else list(names)


def _metric(row: Row, name: str) -> str:
    values = list(row.metric(name).values())
    return formats.mean_and_spread(values, formats.scale(name)) if values else ""


def _removed(row: Row) -> list[str]:
    if not row.is_last:
        return ["", "", ""]
    heads, uniform, layers = (
        statistics.fmean(found)
        for found in zip(
            *(
                (run["sparsity"], len(run.get("uniform_sites") or []), len(run.get("layers_removed") or []))
                for run in row.runs.values()
            ),
            strict=True,
        )
    )
    return [f"{heads:.0%}" if heads else "", f"{uniform:g}" if uniform else "", f"{layers:.2g}" if layers else ""]


def _source(page: Path, place: Place) -> str:
    """Where the raw file is, and the command that makes it."""
    words = ["--model", place.model, "--task", place.task, "--seeds", len(place.data["seeds"])]
    command = " ".join(map(str, ["python benchmarks/run.py", place.experiment, *words, *_flags(place)]))
    return f"{raw_link(page, place.name)}; `{command}`."


def raw_link(page: Path, name: str, text: str = "Raw file") -> str:
    return f"[{text}]({os.path.relpath(RESULTS / f'{name}.json', page.parent)})"


def raw_links(page: Path, tasks: dict[str, list[Place]]) -> str:
    """One for each file, named by the task, and by the experiment where a task has several."""
    links = [
        raw_link(page, place.name, formats.task_name(task) + (f" ({place.experiment})" if len(places) > 1 else ""))
        for task, places in tasks.items()
        for place in places
    ]
    return f"Raw files: {', '.join(links)}."


def _flags(place: Place) -> list[str]:
    """What the command said beyond the config, as far as it changes results."""
    config = read_config(str(BENCHMARKS / place.experiment / "config.yaml"))
    flags = {}
    for run in place.data["runs"]:
        own = {**DEFAULTS, **config, **config.get("runs", {}).get(run["name"], {})}
        found = {name: run["settings"].get(name) for name in FLAGS}
        flags |= {name: value for name, value in found.items() if value not in (None, own.get(name))}
    return [f"--{name} {f'{value:g}' if type(value) in (int, float) else value}" for name, value in flags.items()]


def across(page: Path, words: Sequence[str], options: dict[str, str]) -> str:
    """`across: BASELINE PLACE ... ROW ...`: differences to the baseline, a column for each task, and their mean."""
    baseline, *rest = words
    tasks = by_task([word for word in rest if "/" in word])
    known = dict.fromkeys(name for places in tasks.values() for place in places for name in place.rows)
    shown = _chosen(list(known), [word for word in rest if "/" not in word])
    tasks = {task: found for task, found in tasks.items() if any(paired(found, row, baseline) for row in shown)}
    by_place = [_facts_of_task(places, shown) for places in tasks.values()]
    facts = [_facts_anywhere(by_place, name) for name in shown]
    named = rows.columns(facts, [list(found.values()) for found in by_place])
    lines = []
    for name, fact in zip(shown, facts, strict=True):
        pairs = [paired(places, name, baseline) for places in tasks.values()]
        by = [formats.scale(places[0].metric) for places in tasks.values()]
        cells = [formats.difference(list(found.values()), unit) for found, unit in zip(pairs, by, strict=True)]
        seeds = [len(found) for found in pairs if found]
        if not seeds:
            continue
        place = next(filter(None, (find(places, name) for places in tasks.values())))
        shown_cells = [cell or formats.NO_VALUE for cell in cells]
        lines.append([*(fact[column] for column in named), _removed(place.rows[name])[1], *shown_cells])
        lines[-1] += [mean_of_tasks(pairs), formats.counted(seeds), f"`{name}`"]
    header = [*named, "uniform layers", *map(formats.task_name, tasks), "mean of the tasks", "seeds", "raw name"]
    if len(tasks) == 1 or options.get("mean") == "no":
        header, lines = _without(header, lines, len(named) + 1 + len(tasks))
    return "\n".join([formats.table(header, lines), f"Points against `{baseline}`. {raw_links(page, tasks)}", ""])


def _without(header: list[str], lines: list[list[str]], column: int) -> tuple[list[str], list[list[str]]]:
    return header[:column] + header[column + 1 :], [line[:column] + line[column + 1 :] for line in lines]


def _facts_of_task(places: Sequence[Place], names: Sequence[str]) -> dict[str, dict[str, str]]:
    found = {name: find(places, name) for name in names}
    return {name: rows.facts_of(place, place.rows[name]) for name, place in found.items() if place}


def _facts_anywhere(tasks: Sequence[dict[str, dict[str, str]]], row: str) -> dict[str, str]:
    """Of all tasks that have the row; where they differ, each."""
    found = [facts[row] for facts in tasks if row in facts]
    return {column: rows.joined(fact[column] for fact in found) for column in rows.COLUMNS}


def mean_of_tasks(pairs: Sequence[dict[int, float]]) -> str:
    """By the seeds that all tasks have; a dash where a task has none."""
    means = list(means_by_seed(pairs))
    return formats.difference(means) if means else formats.NO_VALUE


def means_by_seed(pairs: Sequence[dict[int, float]]) -> list[float]:
    seeds = sorted(set.intersection(*(set(found) for found in pairs)))
    return [statistics.fmean(found[seed] for found in pairs) for seed in seeds]


def by_speed(page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`by-speed: BASELINE PLACE ... ROW ...`: the metric on each task, a column for each speed that was asked for."""
    baseline, *rest = words
    tasks = by_task([word for word in rest if "/" in word])
    known = dict.fromkeys(name for places in tasks.values() for place in places for name in place.rows)
    shown = _chosen(list(known), [word for word in rest if "/" not in word])
    facts = [_facts_of_task(places, shown) for places in tasks.values()]
    speeds = [_facts_anywhere(facts, name)["asked"] for name in shown]
    lines = []
    for task, places in tasks.items():
        by = formats.scale(places[0].metric)
        cells = [_score(places, name, baseline, by) for name in shown]
        dense = find(places, baseline)
        assert dense, f"no {baseline} of {task}"
        score = formats.mean_and_spread(list(dense.rows[baseline].values.values()), by).partition(" ")[0]
        lines.append([f"{formats.task_name(task)}, {formats.metric_name(places[0].metric)}", score, *cells])
    means = [mean_of_tasks([paired(places, name, baseline) for places in tasks.values()]) for name in shown]
    return (
        formats.table(["task", "dense", *speeds], [*lines, ["mean difference", "", *means]])
        + "\n"
        + (f"Rows: {', '.join(f'`{name}`' for name in (baseline, *shown))}. {raw_links(page, tasks)}\n")
    )


def _score(places: Sequence[Place], row: str, baseline: str, by: float) -> str:
    """The row's own mean, and its difference by the seeds that the baseline has too."""
    place = find(places, row)
    if place is None:
        return formats.NO_VALUE
    mean = formats.mean_and_spread(list(place.rows[row].values.values()), by).partition(" ")[0]
    pairs = list(paired(places, row, baseline).values())
    return f"{mean}, {formats.difference(pairs, by)}"


def pairs(page: Path, words: Sequence[str], options: dict[str, str]) -> str:
    """`pairs: PLACE ...`, then lines `WHAT CHANGES: ROW against ROW`: differences of rows to each other."""
    tasks = by_task(words)
    lines = []
    for what, rule in options.items():
        row, _, other = rule.partition(" against ")
        found = [paired(places, row, other) for places in tasks.values()]
        cells = [formats.difference(list(one.values()), 100.0) or formats.NO_VALUE for one in found]
        seeds = [len(one) for one in found if one]
        if seeds:
            lines.append([what, *cells, formats.counted(seeds), f"`{row}` against `{other}`"])
    header = ["what differs", *map(formats.task_name, tasks), "seeds", "raw names"]
    return f"{formats.table(header, lines)}\nPoints. {raw_links(page, tasks)}\n"


def heads(_page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`heads: PLACE ROW ...`: heads kept by layer, the mean over seeds."""
    name, *shown = words
    place = Place.read(name)
    found = {row: [run["heads_kept"] for run in place.rows[row].runs.values()] for row in shown if row in place.rows}
    facts = {row: rows.facts_of(place, place.rows[row])["method"] for row in found}
    layers = len(next(iter(found.values()))[0])
    gone = {row: f"{statistics.fmean(run['sparsity'] for run in place.rows[row].runs.values()):.0%}" for row in found}
    lines = [
        [facts[row], gone[row], *(f"{statistics.fmean(column):.1f}" for column in zip(*counts, strict=True))]
        for row, counts in found.items()
    ]
    header = ["heads kept in layer", "removed", *map(str, range(layers))]
    if len(set(gone.values())) == 1:
        header, lines = _without(header, lines, 1)
    return formats.table(header, lines)


def cost(_page: Path, words: Sequence[str], _options: dict[str, str]) -> str:
    """`cost: PLACE ROW ...`: time and most memory of training beside the baseline's, medians over seeds."""
    name, *shown = words
    place = Place.read(name)
    shown = _chosen(list(place.rows), shown)
    facts = [rows.facts_of(place, place.rows[row]) for row in shown]
    named = [column for column in rows.columns(facts) if column == "method"]
    lines = []
    for row, fact in zip(shown, facts, strict=True):
        cells = []
        for key, unit, digits in (("train_seconds", 1, 0), ("peak_memory_bytes", 2**30, 2)):
            median = statistics.median(run[key] for run in place.rows[row].runs.values())
            cells += [f"{median / unit:.{digits}f}", f"{cost_ratio(place, row, key):.2f} ×"]
        lines.append([*(fact[column] for column in named), *cells, f"`{row}`"])
    return formats.table(
        [*named, "seconds", "times the baseline's", "memory, GiB", "times the baseline's", "raw name"], lines
    )


def cost_ratio(place: Place, row: str, key: str) -> float:
    """Time or memory against the baseline's with the same seed: the median over seeds."""
    base = place.rows[str(place.baseline)].runs
    return statistics.median(run[key] / base[seed][key] for seed, run in place.rows[row].runs.items() if seed in base)
