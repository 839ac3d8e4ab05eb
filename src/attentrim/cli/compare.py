"""attentrim compare: methods side by side, over several seeds."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError
from ..runs.facts import removed_in_short
from ..runs.files import read_config
from ..runs.settings import RUN_SETTINGS, SPEED_SETTINGS, comma_separated
from .arguments import (
    add_method_config,
    add_settings,
    add_task_arguments,
    given_settings,
    parse_settings,
    training_flags,
)
from .output import Output, positive

if TYPE_CHECKING:
    from ..compare.comparison import Comparison
    from ..compare.experiment import Experiment
    from ..compare.runs import Outcome

HELP = "compare methods over several seeds at equal steps, with confidence intervals of the differences"
EXAMPLES = """  attentrim compare --model bert-base-uncased --task cola --data_dir glue/CoLA \\
      --methods autoattention,hisp,random-heads --seeds 5 --output_dir comparison
  attentrim compare --model bert-base-uncased --task cola --data_dir glue/CoLA --methods autoattention,l0 \\
      --target_sparsity 0.25 --method_config autoattention.gate_lr=2 --num_train_epochs 3 --output_dir comparison
  attentrim compare --model fine-tuned --task cola --data_dir glue/CoLA --speedup 2 \\
      --methods fisher,fewer-layers,autoattention,l0 --output_dir comparison
  attentrim compare --config experiment.yaml --model bert-base-uncased --task cola --data_dir glue/CoLA \\
      --output_dir comparison

to resume an interrupted comparison, give the same command again"""

OF_ONE_RUN = ("output_dir", "overwrite_output_dir", "method", "no_trim", *SPEED_SETTINGS)
COMMON = [name for name in RUN_SETTINGS if name not in OF_ONE_RUN]
"""What flags can say of all runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_settings(parser, ["max_train_samples", "dropout"])
    parser.add_argument(
        "--methods", metavar="A,B,C", help="methods to compare; plain fine-tuning (dense) is always added"
    )
    parser.add_argument("--seeds", metavar="N", help="number of seeds (0 to N-1), or a list such as 3,4 (default: 5)")
    parser.add_argument(
        "--target_sparsity",
        metavar="SHARE",
        help="share of the heads that each pruning method removes; 'own': each by its own settings (default: 0.5)",
    )
    parser.add_argument(
        "--speedup",
        type=float,
        metavar="X",
        help="instead of --target_sparsity: how many times faster to make each model; methods that do not work "
        "towards a speed remove that share of the FLOPs of heads and neurons",
    )
    add_method_config(parser, "settings for all methods that have them, or for one: METHOD.setting=value")
    parser.add_argument("--only", metavar="A,B", help="run only these, with the baseline and the runs they start from")
    parser.add_argument("--config", help="a YAML file of flags, with `runs` or `sweep` instead of --methods")
    parser.add_argument(
        "--output_dir", required=True, help="where to write results.json, table.md and a directory per run"
    )
    parser.add_argument(
        "--engine",
        default="local",
        help="where to run: local (this machine), or ray (a cluster) (default: local)",
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        help="runs at the same time (default: 1; with ray: one per GPU, or per machine without GPUs)",
    )
    parser.add_argument("--keep_models", action="store_true", help="keep the weights of every run")
    parser.set_defaults(takes_training_arguments=True)


def run(args: argparse.Namespace, output: Output) -> None:
    from tqdm import tqdm

    from ..compare.comparison import compare
    from ..compare.engines import ENGINES
    from ..compare.runs import runs_of
    from ..runs.directories import check_output_dir

    ENGINES[args.engine]  # an unknown one is answered with the nearest
    experiment = experiment_of(args)
    directory = check_output_dir(args.output_dir, str(experiment.entries[0].settings.get("model", "")))
    runs = runs_of(experiment, directory)
    done = sum(run.done for run in runs)
    kept = f"; {done} of them are done already" if done else ""
    seeds = ", ".join(map(str, experiment.seeds))
    output.say(f"{len(runs)} runs: {len(experiment.entries)} configurations, seeds {seeds}{kept}")
    with tqdm(total=len(runs), initial=done, desc="runs", disable=None) as bar:

        def report(outcome: Outcome) -> None:
            bar.clear()
            output.say(_line(outcome))
            bar.update()

        command = "attentrim " + shlex.join(args.words)
        found = compare(
            experiment,
            runs,
            directory,
            command=command,
            engine=args.engine,
            jobs=args.jobs,
            keep_models=args.keep_models,
            report=report,
        )
    _show(output, args.output_dir, experiment, found)


def experiment_of(args: argparse.Namespace) -> Experiment:
    """From flags, over a config file."""
    from ..compare.config import make_experiment
    from ..runs.training import check_flags

    check_flags(args.more)
    return make_experiment(
        read_config(args.config) if args.config else {},
        {**given_settings(args, COMMON), **training_flags(args.more)},
        methods=comma_separated(args.methods or ""),
        method_config=parse_settings(args.method_config or []),
        target_sparsity=args.target_sparsity,
        speedup=args.speedup,
        seeds=args.seeds,
        only=comma_separated(args.only or ""),
    )


def _show(output: Output, directory: str, experiment: Experiment, found: Comparison) -> None:
    from ..compare.comparison import RESULTS, TABLE
    from ..compare.results import short_table

    names, rows = short_table(found.summaries, found.facts["metric"] or "metric", experiment.baseline)
    output.table(f"{found.facts['model']} on {found.facts['task']}", names, rows)
    output.say(f"results: {directory}/{RESULTS}; table: {directory}/{TABLE}")
    output.say(f"for a report: attentrim report --run {directory}")
    output.result(found.result)
    lost = [outcome for outcome in found.outcomes if outcome.error is not None]
    if lost:
        raise AttentrimError(
            f"{len(lost)} of {len(found.outcomes)} runs failed; the first, {lost[0].run.title}: {lost[0].error} "
            "(give the same command again to retry them)"
        )


def _line(outcome: Any) -> str:
    if outcome.error is not None:
        return f"{outcome.run.title}: FAILED: {outcome.error}"
    result = outcome.result
    return (
        f"{outcome.run.title}: {result['metric']} {result['value']:.4f}, removed {removed_in_short(result)}, "
        f"{result['train_seconds']:.0f} s"
    )
