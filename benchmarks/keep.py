"""Add what a comparison found, finished or not, to one file under benchmarks/results.

    python benchmarks/keep.py results/ours-layers/mpnet-base-cola

The file has the format of `compare`'s results.json, with the runs that have ended and without paths. New runs are
added to those it has; a run with the same name and seed is not replaced. Of a run's history it keeps the evaluation
after each epoch and the mean training loss since the one before (`epochs`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from attentrim.compare.experiment import Entry, Experiment, entries_of_sweep
from attentrim.compare.making import SETTINGS
from attentrim.compare.results import KEPT, as_json, summarise
from attentrim.compare.runs import Outcome, Run
from attentrim.errors import AttentrimError
from attentrim.runs.files import read_config, write_json
from attentrim.runs.reader import METRICS, Recorded
from attentrim.runs.settings import RUN_SETTINGS
from attentrim.tasks.metrics import LOWER_IS_BETTER

HERE = Path(__file__).parent
OF_A_RUN = ("commit", "load")
"""What differs between runs on one machine."""
FACTS = ("task", "metric", "examples")
"""What is the same for all runs."""


def outcomes_in(directory: Path) -> list[Outcome]:
    """Those of the runs that have ended."""
    found = []
    for file in directory.glob(f"*/seed-*/{METRICS}"):
        place = file.parent
        settings = _without_paths(json.loads((place / SETTINGS).read_text()))
        run = Run(Entry(place.parent.name, settings), int(place.name.removeprefix("seed-")), place, settings)
        recorded = Recorded.read(place)
        result = recorded.metrics
        if "drop_rates" in recorded.made_by:
            result.setdefault("last", {})["drop_rates"] = list(recorded.made_by["drop_rates"].values())
        result["epochs"] = epochs_of(recorded.history, result["metric"])
        found.append(Outcome(run, result))
    return found


def epochs_of(history: list[dict[str, Any]], metric: str) -> list[dict[str, float]]:
    """What each evaluation found, the training loss since the one before, and how many layers were uniform.

    With `holdout_curve` also what it found on training data that was held out.
    """
    found, losses = [], []
    for line in history:
        if "loss" in line:
            losses.append(line["loss"])
        if f"eval_{metric}" in line and losses:
            figures = {"epoch": line["epoch"], "value": line[f"eval_{metric}"], "train_loss": statistics.fmean(losses)}
            found.append({key: round(value, 6) for key, value in figures.items()})
            found[-1]["uniform"] = len(line.get("uniform_sites", []))
            if f"holdout_{metric}" in line:
                found[-1]["held_out"] = round(line[f"holdout_{metric}"], 6)
            losses = []
    return found


def outcomes_kept(file: Path) -> list[Outcome]:
    """Those of the runs that the file has already."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"runs": []}
    found = []
    for entry in kept["runs"]:
        run = Run(Entry(entry["name"], entry["settings"]), entry["seed"], file, entry["settings"])
        result = {key: kept[key] for key in FACTS} | {key: entry[key] for key in (*KEPT, "epochs") if key in entry}
        result["measured_with"] = {**kept["measured_with"], "commit": entry["commit"]}
        found.append(Outcome(run, result))
    return found


def together(kept: list[Outcome], new: list[Outcome], order: list[str]) -> list[Outcome]:
    """By seed, in the order of the config; runs that the file had already win."""
    by_run = {(outcome.run.entry.name, outcome.run.seed): outcome for outcome in [*new, *kept]}
    places = {name: place for place, name in enumerate(order)}
    return [by_run[run] for run in sorted(by_run, key=lambda run: (run[1], places.get(run[0], len(places))))]


def _without_paths(value: Any) -> Any:
    """Runs of the same comparison become `{name}`; models and data become the last part of their path."""
    if isinstance(value, dict):
        return {name: _without_paths(inner) for name, inner in value.items()}
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    parts = Path(value).parts
    return f"{{{parts[-2]}}}" if parts[-1].startswith("seed-") else parts[-1]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="the comparison's --output_dir: .../EXPERIMENT/MODEL-TASK")
    directory = parser.parse_args(words).directory
    name = directory.resolve().parent.name
    config = read_config(str(HERE / name / "config.yaml"))
    swept = entries_of_sweep(config["sweep"], config, RUN_SETTINGS) if "sweep" in config else []
    out = HERE / "results" / name / f"{directory.resolve().name}.json"
    new = outcomes_in(directory)
    if not new:
        raise AttentrimError(f"{directory} has no run that has ended.")
    outcomes = together(outcomes_kept(out), new, [*config.get("runs", {}), *(entry.name for entry in swept)])
    entries = {outcome.run.entry.name: outcome.run.entry for outcome in outcomes}
    seeds = tuple(dict.fromkeys(outcome.run.seed for outcome in outcomes))
    # references between runs were checked when they ran
    plain = tuple(Entry(entry.name, {"method": entry.settings.get("method", "none")}) for entry in entries.values())
    baseline = config.get("baseline", "dense")
    experiment = Experiment(plain, seeds, baseline if baseline in entries else None, config["about"])
    first = outcomes[0].result
    facts = {
        "model": directory.resolve().name.rpartition("-")[0],
        **{key: first[key] for key in FACTS},
        "higher_is_better": first["metric"] not in LOWER_IS_BETTER,
        "measured_with": {key: value for key, value in first["measured_with"].items() if key not in OF_A_RUN},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = as_json(experiment, outcomes, facts, summarise(experiment, outcomes))
    for run, outcome in zip(kept["runs"], outcomes, strict=True):
        run["commit"] = outcome.result["measured_with"].get("commit")
        if outcome.result.get("epochs"):
            run["epochs"] = outcome.result["epochs"]
    write_json(out, kept)
    print(f"{out.relative_to(HERE.parent)}: {len(outcomes)} runs, {len(entries)} entries, seeds {list(seeds)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AttentrimError as error:
        sys.exit(f"keep.py: error: {error}")
