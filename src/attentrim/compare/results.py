"""Typed results of a comparison, confidence intervals of the differences, and a table for people."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .experiment import Experiment
from .runs import Outcome

VERSION = 1
KEPT = (
    *("value", "metrics", "examples"),
    *("sparsity", "heads_total", "heads_kept", "uniform_sites", "neurons_kept", "layers_removed", "removed"),
    *("parameters", "flops_ratio", "train_seconds", "train_loss", "peak_memory_bytes"),
    *("masked_value", "alternatives", "last", "speeds"),
)
"""Of what a run writes into metrics.json."""


@dataclass(frozen=True)
class Summary:
    """One entry over its seeds."""

    name: str
    seeds: int
    failed: int
    mean: float | None
    sd: float | None
    difference: float | None
    """The mean of the paired differences to the baseline, seed by seed."""
    interval: tuple[float, float] | None
    """Its 95% interval (Student's t); None with fewer than two pairs."""
    sparsity: float | None
    uniform: float | None
    """Sites with uniform attention."""
    parameters: float | None
    seconds: float | None


def summarise(experiment: Experiment, outcomes: Sequence[Outcome]) -> list[Summary]:
    by_name: dict[str, dict[int, dict[str, Any]]] = {entry.name: {} for entry in experiment.entries}
    failed = dict.fromkeys(by_name, 0)
    for outcome in outcomes:
        if outcome.error is None:
            by_name[outcome.run.entry.name][outcome.run.seed] = outcome.result
        else:
            failed[outcome.run.entry.name] += 1
    base = by_name.get(experiment.baseline or "", {})
    return [_summary(name, results, base, failed[name], experiment.baseline) for name, results in by_name.items()]


def _summary(
    name: str, results: dict[int, dict[str, Any]], base: dict[int, dict[str, Any]], failed: int, baseline: str | None
) -> Summary:
    values = [results[seed]["value"] for seed in sorted(results)]
    pairs = [results[seed]["value"] - base[seed]["value"] for seed in sorted(results.keys() & base.keys())]
    compared = bool(pairs) and name != baseline
    return Summary(
        name,
        len(values),
        failed,
        _mean(values),
        statistics.stdev(values) if len(values) > 1 else None,
        _mean(pairs) if compared else None,
        interval(pairs) if compared else None,
        _mean([result["sparsity"] for result in results.values()]),
        _mean([len(result["uniform_sites"]) for result in results.values()]),
        _mean([result["parameters"] for result in results.values()]),
        _mean([result["train_seconds"] for result in results.values()]),
    )


NO_INTERVAL = "needs 2 seeds"


def interval_in_words(difference: float | None, bounds: Sequence[float] | None, places: int = 4) -> str:
    """'-0.0123 to +0.0456', or why there is none; nothing for what is not compared with anything."""
    if bounds is None:
        return "" if difference is None else NO_INTERVAL
    return f"{bounds[0]:+.{places}f} to {bounds[1]:+.{places}f}"


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval of a mean of paired differences, by Student's t."""
    if len(differences) < 2:
        return None
    from scipy import stats

    half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return statistics.fmean(differences) - half, statistics.fmean(differences) + half


def as_json(
    experiment: Experiment, outcomes: Sequence[Outcome], facts: dict[str, Any], summaries: Sequence[Summary]
) -> dict[str, Any]:
    """All that was found; `facts` are those of the whole comparison."""
    runs = [
        {
            "name": outcome.run.entry.name,
            "seed": outcome.run.seed,
            "error": outcome.error,
            **{key: outcome.result[key] for key in KEPT if key in outcome.result},
            "settings": dict(outcome.run.settings),
        }
        for outcome in outcomes
    ]
    return {
        "version": VERSION,
        "about": experiment.about,
        **facts,
        "seeds": list(experiment.seeds),
        "baseline": experiment.baseline,
        "summary": [asdict(summary) for summary in summaries],
        "runs": runs,
    }


COLUMNS = (
    "run",
    "{metric}",
    "sd",
    "seeds",
    "vs {baseline}",
    "95% interval",
    "removed",
    "uniform",
    "seconds",
    "parameters",
)


def table(summaries: Sequence[Summary], metric: str, baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and rows of text."""
    names = [column.format(metric=metric, baseline=baseline or "nothing") for column in COLUMNS]
    return names, [_cells(summary) for summary in summaries]


def short_table(summaries: Sequence[Summary], metric: str, baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """The same for a terminal."""
    rows = []
    for item in summaries:
        removed = _number(item.sparsity, "{:.0%}") + (
            _number(item.uniform, " + {:g} uniform sites") if item.uniform else ""
        )
        rows.append(
            [
                item.name,
                _number(item.mean, "{:.4f}") + _number(item.sd, " ± {:.4f}") + (" (failed)" if item.failed else ""),
                _number(item.difference, "{:+.4f}"),
                interval_in_words(item.difference, item.interval, places=3),
                removed,
                _number(item.seconds, "{:.0f}"),
            ]
        )
    return ["run", metric, f"vs {baseline}" if baseline else "", "95% interval", "removed", "s"], rows


def _cells(summary: Summary) -> list[str]:
    count = f"{summary.seeds}" + (f" ({summary.failed} failed)" if summary.failed else "")
    return [
        summary.name,
        _number(summary.mean, "{:.4f}"),
        _number(summary.sd, "{:.4f}"),
        count,
        _number(summary.difference, "{:+.4f}"),
        interval_in_words(summary.difference, summary.interval),
        _number(summary.sparsity, "{:.1%}"),
        _number(summary.uniform, "{:g}"),
        _number(summary.seconds, "{:.0f}"),
        _number(summary.parameters, "{:,.0f}"),
    ]


def _number(value: float | None, shape: str) -> str:
    return "" if value is None else shape.format(value)


def markdown(experiment: Experiment, facts: dict[str, Any], summaries: Sequence[Summary], command: str) -> str:
    names, rows = table(summaries, facts["metric"] or "metric", experiment.baseline)
    lines = ["| " + " | ".join(cells) + " |" for cells in (names, ["---"] * len(names), *rows)]
    better = "higher" if facts["higher_is_better"] else "lower"
    about = f"{experiment.about}\n\n" if experiment.about else ""
    body = "\n".join(lines)
    return f"""# {facts["model"]} on {facts["task"]}

{about}{body}

Mean and standard deviation over the seeds; differences are paired by seed, with Student's 95% interval; {better} is
better. Measured on {facts["examples"]} examples. "removed" is the share of the heads, "uniform" the number of sites
with uniform attention; seconds are those of training. Made by:

```bash
{command}
```
"""
