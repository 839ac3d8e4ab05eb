"""attentrim evaluate: the metric of any checkpoint."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from ..errors import AttentrimError, TaskError
from ..runs.directories import check_output_file
from .arguments import add_task_arguments, task_settings
from .output import Output, metric_rows, positive

HELP = "measure a trained checkpoint, trimmed or not, on a task"
EXAMPLES = """  attentrim evaluate --model run --task cola --data_dir glue/CoLA
  attentrim evaluate --model run --validation_file reviews.csv
  attentrim evaluate --model run --task cola --data_dir glue/CoLA --split test --predictions CoLA.tsv
  attentrim evaluate --model fine-tuned --plan plan.json --task cola --data_dir glue/CoLA"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    parser.add_argument("--split", default="validation", help="train, validation or test (default: validation)")
    parser.add_argument(
        "--teacher", help="the model to compare embeddings with (default: the one that the run started from)"
    )
    parser.add_argument("--plan", help="evaluate a full-shape model as if this plan had been applied")
    parser.add_argument(
        "--predictions", metavar="FILE", help="write the predictions to this file, in GLUE's format for GLUE tasks"
    )
    parser.add_argument("--per_device_eval_batch_size", type=positive, help="batch size (default: 64; clm: 8)")
    parser.add_argument("--use_cpu", action="store_true", help="use the CPU even if there is a GPU")


def run(args: argparse.Namespace, output: Output) -> None:
    _check(args)

    from ..plan import Plan
    from ..runs.loading import load_for_task
    from ..runs.predictions import write_predictions

    plan = Plan.load(args.plan) if args.plan else None
    loaded = load_for_task(task_settings(args), [args.split], output.say, fresh_head=False)
    if args.predictions and not loaded.task.kind.predicts:
        raise TaskError(f"There are no predictions of {loaded.task.name} to write: leave --predictions out.")
    if args.teacher and not loaded.task.kind.embeds:
        raise TaskError(f"--teacher is for embeddings; {loaded.task.name} has labels: leave it out.")
    if loaded.task.kind.embeds:
        _load_teacher(args, loaded, output)
    labelled = not args.predictions and not args.split.startswith("test")
    data = loaded.data(args.split, args.max_eval_samples, labelled)
    evaluation = loaded.evaluation(data, args.max_eval_samples, more_sets=args.split == "validation")
    with tempfile.TemporaryDirectory() as directory:
        rows = args.per_device_eval_batch_size or loaded.task.kind.most_rows
        result, outputs = evaluation.of_model(loaded.model, _training_arguments(args, rows, directory), plan)
    if args.predictions:
        write_predictions(args.predictions, loaded, args.split, data, outputs)
        output.say(f"{data.examples} predictions written to {args.predictions}")
    elif result["value"] is None:
        raise TaskError(
            f"The {args.split} data has no labels, so there is no metric: --predictions FILE writes the predictions."
        )
    if result["value"] is not None:
        title = f"{args.model} on {result['task']}, {result['examples']} examples"
        output.table(title, ("metric", "value"), metric_rows(result))
    output.result({**result, "model": args.model})


def _load_teacher(args: argparse.Namespace, loaded: Any, output: Output) -> None:
    """The model whose embeddings are the measure; none where nothing says which one that is."""
    import torch

    from ..runs.pretrained import load_teacher, load_tokenizer
    from ..runs.sentences import check_teacher, trained_from

    name = args.teacher or trained_from(args.model)
    if name is None:
        return
    loaded.teacher = load_teacher(name, loaded.task)
    check_teacher(loaded.teacher, loaded.model, name, (load_tokenizer(name), loaded.tokenizer))
    loaded.device = "cuda" if torch.cuda.is_available() and not args.use_cpu else "cpu"
    output.say(f"compared with the embeddings of {name}")


def _check(args: argparse.Namespace) -> None:
    """Before anything is loaded."""
    if args.model is None:
        raise AttentrimError("--model is missing: give a trained checkpoint.")
    if not args.predictions:
        return
    check_output_file(args.predictions)
    if args.skip_bad_rows:
        raise AttentrimError("--predictions writes one line per row: leave out --skip_bad_rows.")


def _training_arguments(args: argparse.Namespace, rows: int, directory: str) -> Any:
    from transformers import TrainingArguments

    return TrainingArguments(
        directory,
        per_device_eval_batch_size=rows,
        use_cpu=args.use_cpu,
        report_to=[],
    )
