"""A comparison from its experiment to finished files: results.json, table.md, and cards of models that were kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..card import try_card
from ..machine import measured_with
from ..runs.files import write_json
from ..runs.occupied import locked
from ..tasks.metrics import LOWER_IS_BETTER
from .experiment import Experiment
from .results import Summary, as_json, markdown, summarise
from .runs import Outcome, Run, run_all

RESULTS, TABLE = "results.json", "table.md"


@dataclass(frozen=True)
class Comparison:
    """What was found, in the order of the runs."""

    outcomes: Sequence[Outcome]
    summaries: Sequence[Summary]
    facts: Mapping[str, Any]
    """What holds for all runs."""
    result: dict[str, Any]
    """As in results.json."""


def compare(
    experiment: Experiment,
    runs: Sequence[Run],
    directory: Path,
    *,
    command: str,
    engine: str = "local",
    jobs: int | None = None,
    keep_models: bool = False,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> Comparison:
    """Run what is not done yet, and write what was found. `report` is called with each new outcome.

    `command` is what the table says that it was made by.
    """
    with locked(directory):
        outcomes = list(run_all(runs, jobs, keep_models, report, engine))
        outcomes.sort(key=lambda outcome: runs.index(outcome.run))
        return _written(experiment, outcomes, directory, command)


def _written(experiment: Experiment, outcomes: Sequence[Outcome], directory: Path, command: str) -> Comparison:
    facts = _facts(outcomes, experiment.entries[0].settings)
    summaries = summarise(experiment, outcomes)
    result = as_json(experiment, outcomes, {**facts, "measured_with": measured_with()}, summaries)
    write_json(directory / RESULTS, result)
    _update_cards(outcomes, summaries, facts["metric"], experiment.baseline)
    write_text(directory / TABLE, markdown(experiment, facts, summaries, command))
    return Comparison(outcomes, summaries, facts, result)


def _facts(outcomes: Sequence[Outcome], common: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next((outcome.result for outcome in outcomes if outcome.error is None), {})
    return {
        "model": str(common.get("model", "MiniLM-L6")).rstrip("/").rpartition("/")[2],
        "task": found.get("task", common.get("task")),
        "metric": found.get("metric"),
        "higher_is_better": found.get("metric") not in LOWER_IS_BETTER,
        "examples": found.get("examples"),
    }


def _update_cards(
    outcomes: Sequence[Outcome], summaries: Sequence[Summary], metric: str, baseline: str | None
) -> None:
    """Models that were kept say how runs like theirs did over all seeds."""
    found = {summary.name: asdict(summary) for summary in summaries}
    for outcome in outcomes:
        own = found[outcome.run.entry.name]
        if outcome.error is None and list(outcome.run.directory.glob("model*.safetensors")):
            entries = [own] if own["name"] == baseline or baseline not in found else [found[baseline], own]
            seeds = {"metric": metric, "entries": entries, **{key: own[key] for key in ("difference", "interval")}}
            try_card(outcome.run.directory, seeds=seeds)
