"""attentrim evaluate: the metric of any checkpoint."""

from __future__ import annotations

import argparse

from .arguments import add_task_arguments
from .output import Output, positive

HELP = "measure a trained checkpoint, trimmed or not, on a task"
EXAMPLES = """  attentrim evaluate --model run --task cola --data_dir glue/CoLA
  attentrim evaluate --model fine-tuned --plan plan.json --task cola --data_dir glue/CoLA"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    parser.add_argument("--split", default="validation", help="train or validation (default: validation)")
    parser.add_argument("--plan", help="evaluate a full-shape model as if this plan had been carried out")
    parser.add_argument("--per_device_eval_batch_size", type=positive, default=64, help="(default: 64)")
    parser.add_argument("--use_cpu", action="store_true", help="stay on the CPU")


def run(args: argparse.Namespace, output: Output) -> None:
    import tempfile
    from contextlib import ExitStack

    from transformers import DataCollatorWithPadding, TrainingArguments

    from ..control import Control
    from ..plan import Plan
    from .tasks import evaluate, load_for_task, metric_rows

    plan = Plan.load(args.plan) if args.plan else None
    loaded = load_for_task(args, [args.split], fresh_head=False)
    data = loaded.data(args.split, args.max_eval_samples, output)
    with ExitStack() as stack:
        if plan is not None:
            stack.enter_context(Control(loaded.model)).apply(plan)
        settings = TrainingArguments(
            stack.enter_context(tempfile.TemporaryDirectory()),
            per_device_eval_batch_size=args.per_device_eval_batch_size,
            use_cpu=args.use_cpu,
            report_to=[],
        )
        result = evaluate(loaded.task, loaded.model, data, DataCollatorWithPadding(loaded.tokenizer), settings)
    output.table(f"{args.model} on {args.task}, {len(data)} examples", ("metric", "value"), metric_rows(result))
    output.result({**result, "model": args.model})
