"""attentrim compare: methods side by side, over several seeds."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError, did_you_mean
from .arguments import (
    DATA_FLAGS,
    add_task_arguments,
    add_training_arguments,
    comma_separated,
    given,
    given_training_arguments,
    parse_settings,
    read_config,
    training_names,
)
from .output import Output, positive
from .train import OWN

if TYPE_CHECKING:
    from ..compare.experiment import Experiment

HELP = "run methods side by side with the same steps, over several seeds, and tell what the differences are worth"
EXAMPLES = """  attentrim compare --model bert-base-uncased --task cola --data_dir glue/CoLA \\
      --methods autoattention,hisp,random-heads --seeds 5 --output_dir comparison
  attentrim compare --model bert-base-uncased --task cola --data_dir glue/CoLA --methods autoattention,l0 \\
      --target_sparsity 0.25 --method_config autoattention.gate_lr=2 --num_train_epochs 3 --output_dir comparison
  attentrim compare --config experiment.yaml --model bert-base-uncased --task cola --data_dir glue/CoLA \\
      --output_dir comparison

a comparison that was stopped goes on where it was when the same command is given again"""

DEFAULTS = {
    "num_train_epochs": 4,
    "learning_rate": 3e-5,
    "per_device_train_batch_size": 32,
    "save_strategy": "no",
    "report_to": "none",
}
"""For all runs alike, so that all take the same steps."""
OF_ITS_OWN = ("about", "baseline", "runs", "seeds", "sweep")
"""Keys of a config file that `train` does not know."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_training_arguments(parser)
    parser.add_argument("--methods", metavar="A,B,C", help="methods; plain fine-tuning (dense) is always there too")
    parser.add_argument("--seeds", metavar="N", help="how many: 0 to N-1, or a list such as 3,4 (default: 5)")
    parser.add_argument(
        "--target_sparsity",
        metavar="SHARE",
        help="heads that each method that prunes removes; 'own': as each sees fit (default: 0.5)",
    )
    parser.add_argument(
        "--method_config",
        nargs="+",
        action="extend",
        metavar="K=V",
        help="settings of all methods that have them, or of one: METHOD.setting=value",
    )
    parser.add_argument("--only", metavar="A,B", help="these runs only, with the baseline and what they start from")
    parser.add_argument("--config", help="a YAML file with flags, and with `runs` or `sweep` in place of --methods")
    parser.add_argument("--output_dir", required=True, help="a directory for each run, results.json and table.md")
    parser.add_argument("--jobs", type=positive, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--keep_models", action="store_true", help="keep the weights of every run")
    parser.set_defaults(takes_training_arguments=True)


def run(args: argparse.Namespace, output: Output) -> None:
    from .models import check_output_dir

    experiment = experiment_of(args)
    common = experiment.entries[0].settings
    directory = check_output_dir(args.output_dir, str(common.get("model", "")))

    from tqdm import tqdm

    from ..compare.results import as_json, markdown, short_table, summarise
    from ..compare.runs import carry_out, runs_of
    from ..machine import measured_with
    from ..run_files import write_json

    runs = runs_of(experiment, directory)
    kept = sum(run.done for run in runs)
    output.say(f"{len(experiment.entries)} runs with {len(experiment.seeds)} seeds each" + _kept(kept))
    outcomes = []
    with tqdm(total=len(runs), initial=kept, desc="runs", disable=None) as bar:

        def report(outcome: Any) -> None:
            bar.clear()
            output.say(_line(outcome))
            bar.update()

        for outcome in carry_out(runs, args.jobs, args.keep_models, report):
            outcomes.append(outcome)
    outcomes.sort(key=lambda outcome: runs.index(outcome.run))
    facts = _facts(outcomes, common)
    summaries = summarise(experiment, outcomes)
    result = as_json(experiment, outcomes, {**facts, "measured_with": measured_with()}, summaries)
    write_json(directory / "results.json", result)
    _update_cards(outcomes, summaries, facts["metric"], experiment.baseline)
    (directory / "table.md").write_text(markdown(experiment, facts, summaries, _command(args)), encoding="utf-8")
    names, rows = short_table(summaries, facts["metric"] or "metric", experiment.baseline)
    output.table(f"{facts['model']} on {facts['task']}", names, rows)
    output.say(f"results: {directory / 'results.json'}; table: {directory / 'table.md'}")
    output.say(f"see it: attentrim report --run {args.output_dir}")
    output.result(result)
    lost = [outcome for outcome in outcomes if outcome.error is not None]
    if lost:
        raise AttentrimError(
            f"{len(lost)} of {len(runs)} runs failed; the first, {lost[0].run.title}: {lost[0].error} "
            "(the same command tries these again)"
        )


def experiment_of(args: argparse.Namespace) -> Experiment:
    """From flags, over a config file."""
    from ..compare.experiment import (
        DENSE,
        Experiment,
        chosen_entries,
        entries_of_config,
        entries_of_methods,
        entries_of_sweep,
    )

    config = read_config(args.config) if args.config else {}
    own = {key: config.pop(key) for key in OF_ITS_OWN if key in config}
    flags = {name: getattr(args, name, None) for name in OWN if name not in ("output_dir", "method", "no_trim")}
    common = {**DEFAULTS, **config, **_present(flags), **given_training_arguments(args.more)}
    if not common.get("model") and common.get("task") != "acceptability":
        raise AttentrimError("--model is missing.")
    if not any(common.get(name) for name in DATA_FLAGS):
        raise AttentrimError("Say what the data is: --task NAME, --train_file FILE, or --dataset NAME.")
    settings = parse_settings(args.method_config or [])
    if bool(args.methods) == bool(own.keys() & {"runs", "sweep"}):
        raise AttentrimError("Say what to compare: either --methods, or --config with runs or sweep.")
    if args.methods:
        sparsity = _sparsity(args.target_sparsity)
        entries = entries_of_methods(comma_separated(args.methods), settings, sparsity, common)
    else:
        if settings or args.target_sparsity:
            raise AttentrimError("--method_config and --target_sparsity go with --methods; a config has its own.")
        entries = entries_of_config(own.get("runs") or {}, common)
        if own.get("sweep"):
            entries += entries_of_sweep(own["sweep"], common, [*OWN, *training_names()])
    known = {*OWN, "method_config", *training_names()} - {"output_dir"}
    for entry in entries:
        for key in sorted(entry.settings.keys() - known):
            raise AttentrimError(f"The run {entry.name!r} has no setting {key!r}.{did_you_mean(key, known)}")
    names = [entry.name for entry in entries]
    baseline = own.get("baseline", DENSE if DENSE in names else None)
    if args.only:
        entries = chosen_entries(entries, [*comma_separated(args.only), *([baseline] if baseline else [])])
    return Experiment(tuple(entries), _seeds(args.seeds or own.get("seeds", 5)), baseline, own.get("about", ""))


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if given(value)}


def _sparsity(text: str | None) -> float | None:
    if text == "own":
        return None
    try:
        value = float(text or 0.5)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise AttentrimError(f"--target_sparsity must be a share in [0, 1), or 'own'. Got {text}.")
    return value


def _seeds(given: Any) -> tuple[int, ...]:
    try:
        text = ",".join(str(seed) for seed in given) + "," if isinstance(given, list) else str(given)
        found = [int(part) for part in comma_separated(text)] if "," in text else list(range(int(text)))
    except ValueError:
        found = []
    if not found or len(set(found)) < len(found) or min(found) < 0:
        raise AttentrimError(f"--seeds is how many seeds, or a list of different ones such as 3,4. Got {given}.")
    return tuple(found)


def _update_cards(outcomes: list[Any], summaries: list[Any], metric: str, baseline: str | None) -> None:
    """Models that were kept say how runs like theirs did over all seeds."""
    from dataclasses import asdict

    from ..card import try_card

    found = {summary.name: asdict(summary) for summary in summaries}
    for outcome in outcomes:
        own = found[outcome.run.entry.name]
        if outcome.error is None and list(outcome.run.directory.glob("model*.safetensors")):
            entries = [own] if own["name"] == baseline or baseline not in found else [found[baseline], own]
            seeds = {"metric": metric, "entries": entries, **{key: own[key] for key in ("difference", "interval")}}
            try_card(outcome.run.directory, seeds=seeds)


def _kept(count: int) -> str:
    return f"; {count} of them are done already" if count else ""


def _line(outcome: Any) -> str:
    if outcome.error is not None:
        return f"{outcome.run.title}: FAILED: {outcome.error}"
    result = outcome.result
    return (
        f"{outcome.run.title}: {result['metric']} {result['value']:.4f}, {result['sparsity']:.1%} of the heads "
        f"removed, {len(result['uniform_sites'])} sites uniform, {result['train_seconds']:.0f} s"
    )


def _facts(outcomes: list[Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """What holds for all runs."""
    from ..tasks.metrics import LOWER_IS_BETTER

    found: dict[str, Any] = next((outcome.result for outcome in outcomes if outcome.error is None), {})
    return {
        "model": str(common.get("model", "MiniLM-L6")).rstrip("/").rpartition("/")[2],
        "task": found.get("task", common.get("task")),
        "metric": found.get("metric"),
        "higher_is_better": found.get("metric") not in LOWER_IS_BETTER,
        "examples": found.get("examples"),
    }


def _command(args: argparse.Namespace) -> str:
    return "attentrim " + shlex.join(args.words)
