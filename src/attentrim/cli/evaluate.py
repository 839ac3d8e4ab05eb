"""attentrim evaluate: the metric of any checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import AttentrimError, TaskError
from .arguments import add_task_arguments
from .output import Output, positive

HELP = "measure a trained checkpoint, trimmed or not, on a task"
EXAMPLES = """  attentrim evaluate --model run --task cola --data_dir glue/CoLA
  attentrim evaluate --model run --validation_file reviews.csv
  attentrim evaluate --model run --task cola --data_dir glue/CoLA --split test --predictions CoLA.tsv
  attentrim evaluate --model fine-tuned --plan plan.json --task cola --data_dir glue/CoLA"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    parser.add_argument("--split", default="validation", help="train, validation or test (default: validation)")
    parser.add_argument("--plan", help="evaluate a full-shape model as if this plan had been carried out")
    parser.add_argument("--predictions", metavar="FILE", help="write the answers here: GLUE's format for its tasks")
    parser.add_argument("--per_device_eval_batch_size", type=positive, default=64, help="(default: 64)")
    parser.add_argument("--use_cpu", action="store_true", help="stay on the CPU")


def run(args: argparse.Namespace, output: Output) -> None:
    import tempfile
    from contextlib import ExitStack

    if args.model is None:
        raise AttentrimError("--model is missing: a trained checkpoint.")
    if args.predictions and (Path(args.predictions).is_dir() or not Path(args.predictions).resolve().parent.is_dir()):
        raise AttentrimError(f"Cannot write {args.predictions}: it must be a file in a directory that exists.")

    from transformers import TrainingArguments

    from ..control import Control
    from ..plan import Plan
    from .tasks import evaluate, load_for_task, metric_rows

    if args.predictions and args.skip_bad_rows:
        raise AttentrimError("--predictions files an answer for each row: leave --skip_bad_rows out.")
    plan = Plan.load(args.plan) if args.plan else None
    loaded = load_for_task(args, [args.split], output, fresh_head=False)
    if args.predictions and loaded.task.kind == "mlm":
        raise TaskError("Masked language modelling has no predictions to write: leave --predictions out.")
    with ExitStack() as stack:
        if plan is not None:
            stack.enter_context(Control(loaded.model)).apply(plan)
        settings = TrainingArguments(
            stack.enter_context(tempfile.TemporaryDirectory()),
            per_device_eval_batch_size=args.per_device_eval_batch_size,
            use_cpu=args.use_cpu,
            report_to=[],
        )
        labelled = not args.predictions and not args.split.startswith("test")
        data = loaded.data(args.split, args.max_eval_samples, labelled)
        result, outputs = evaluate(loaded, loaded.model, data, settings)
        if args.split == "validation":
            add_more_sets(result, loaded, loaded.model, args, settings)
    if args.predictions:
        from .predictions import write_predictions

        write_predictions(args.predictions, loaded, args.split, data, outputs)
        output.say(f"{data.examples} answers are in {args.predictions}")
    elif result["value"] is None:
        raise TaskError(f"The {args.split} data has no labels to measure by: --predictions FILE writes the answers.")
    if result["value"] is not None:
        title = f"{args.model} on {result['task']}, {result['examples']} examples"
        output.table(title, ("metric", "value"), metric_rows(result))
    output.result({**result, "model": args.model})


def add_more_sets(result: dict[str, Any], loaded: Any, model: Any, args: Any, settings: Any) -> None:
    """The metrics of a task's other sets, under their names."""
    from .tasks import evaluate

    for name, split in loaded.task.more_sets.items():
        data = loaded.data(split, args.max_eval_samples)
        found, _ = evaluate(loaded, model, data, settings)
        result["metrics"] |= {f"{name}_{metric}": value for metric, value in found["metrics"].items()}
