"""attentrim train: fine-tune with a method, then trim."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..distillation import FLAGS as DISTILLATION_FLAGS
from ..runs.facts import removed_in_words
from ..runs.headline import dense_command, headline_of, lacks_dense, speeds_table
from ..runs.settings import DATA_SETTINGS, RUN_SETTINGS, SPEED_SETTINGS
from .arguments import OF_ONE_METHOD, SPEED_GROUP, add_method_config, add_settings, add_task_arguments, run_settings
from .output import Output, metric_rows, size_table

if TYPE_CHECKING:
    from ..runs.finish import Finished

HELP = "fine-tune a model while a method decides what to remove, then remove it"
EXAMPLES = """  attentrim train --model bert-base-uncased --train_file reviews.csv --speedup 2 --output_dir run
  attentrim train --model bert-base-uncased --task cola --data_dir glue/CoLA --output_dir run
  attentrim train --model bert-base-uncased --task mrpc --data_dir glue/MRPC --output_dir run \\
      --method autoattention --method_config target_sparsity=0.5 --num_train_epochs 3 --bf16
  attentrim train --model bert-base-uncased --train_file pairs.jsonl --validation_file dev.jsonl \\
      --text_column question --text_pair_column answer --label_column good --output_dir run
  attentrim train --config run/config.yaml --output_dir again

every field of TrainingArguments is a flag too; --help_all lists them"""

GROUPS = {
    SPEED_GROUP: SPEED_SETTINGS,
    "distillation (some methods set other defaults)": tuple(
        name for name in RUN_SETTINGS if name == "teacher" or name in DISTILLATION_FLAGS
    ),
    "LoRA": tuple(name for name in RUN_SETTINGS if name.startswith("lora_")),
}
"""Flags that have a heading of their own in the help text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    grouped = [name for names in GROUPS.values() for name in names]
    add_settings(parser, [name for name in RUN_SETTINGS if name not in ("model", *DATA_SETTINGS, *grouped)])
    add_method_config(parser, OF_ONE_METHOD)
    for title, names in GROUPS.items():
        add_settings(parser.add_argument_group(title), names)
    parser.add_argument("--config", help="a YAML file of flags; flags on the command line override it")
    parser.add_argument("--help_all", action="store_true", help="list the flags of TrainingArguments too")
    parser.set_defaults(takes_training_arguments=True, help_text=parser.format_help)


def run(args: argparse.Namespace, output: Output) -> None:
    if args.help_all:
        from ..runs.training import training_parser

        output.say(args.help_text() + "\n" + training_parser().format_help())
        return
    settings = run_settings(args)
    settings.check()
    if output.quiet:
        settings = replace(settings, training={**settings.training, "disable_tqdm": True})

    from ..runs import pipeline
    from ..runs.stopping import Stopped
    from .progress import CompactProgress

    try:
        finished = pipeline.run(settings, say=output.say, progress=CompactProgress, stoppable=True)
    except Stopped as stopped:
        output.say(f"\nto resume: {_command(args.words)}")
        raise stopped
    if finished.trainer.is_world_process_zero():
        report(output, finished)


def _command(words: Sequence[str]) -> str:
    """As it was given, with the launcher of several processes."""
    processes, here = os.environ.get("WORLD_SIZE", "1"), os.environ.get("LOCAL_WORLD_SIZE")
    launcher = f"torchrun --nproc_per_node {here} -m " if processes != "1" and processes == here else ""
    launched = "" if launcher or processes == "1" else ", launched as before"
    return f"{launcher}attentrim {shlex.join(words)}{launched}"


def report(output: Output, finished: Finished) -> None:
    result = finished.result
    output.say(headline_of(result, finished.speed, here=True))
    if lacks_dense(result):
        output.say(f"the dense model was not evaluated; to see what this cost: {dense_command(result['output_dir'])}")
    columns, speeds = speeds_table(result)
    if speeds:
        output.table("the models of this training", columns, speeds)
    if finished.plan:
        size_table(output, f"{result['output_dir']}: before and after", *finished.sizes, finished.plan)
    output.table(f"{result['task']}, {result['examples']} examples", ("metric", "value"), metric_rows(result))
    for line in [*(removed_in_words(finished.plan) if finished.plan else []), *_other_values(result)]:
        output.say(line)
    output.say(
        f"trained for {result['train_seconds']:.0f} s; for a report: attentrim report --run {result['output_dir']}"
    )
    output.result(result)


def _other_values(result: dict[str, Any]) -> list[str]:
    """What the metric was in other states of the model, and what to know about it."""
    metric, before = result["metric"], result.get("before")
    masked = f"before trimming, with the plan as masks, {metric} was {result['masked_value']:.4f}"
    lines = [masked] if result["removed"] else []
    for name, value in result.get("alternatives", {}).items():
        lines.append(f"with {name.replace('_', ' ')}, {metric} was {value:.4f}")
    lines += result.get("remarks", [])
    return lines + ([f"{metric} of {before['of']} was {before['value']:.4f}"] if before else [])
