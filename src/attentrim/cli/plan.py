"""attentrim plan: choose what to remove without training."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError, MethodError
from ..runs.facts import facts_of_plan, removed_in_words
from ..runs.settings import SPEED_METHOD, SPEED_SETTINGS, flags_of_method, read_method
from .arguments import (
    SPEED_GROUP,
    add_search_arguments,
    add_settings,
    add_task_arguments,
    given_settings,
    parse_settings,
    task_settings,
)
from .output import Output, positive, size_fields, size_table

if TYPE_CHECKING:
    from ..methods import Method
    from ..runs.planning import Planned

BATCH_SIZE = 32
"""Examples at a time, unless told otherwise."""
HELP = "choose what to remove from a trained model, without training, and measure what that costs"
EXAMPLES = """  attentrim plan --model fine-tuned --task mrpc --data_dir glue/MRPC --speedup 1.5 --output_dir small
  attentrim plan --model fine-tuned --train_file reviews.csv --max_drop 0.01 --output_dir small
  attentrim plan --model fine-tuned --task cola --data_dir glue/CoLA --method hisp --out plan.json
  attentrim plan --model fine-tuned --task cola --data_dir glue/CoLA --method random-heads \\
      --method_config target_sparsity=0.25 --out plan.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_search_arguments(parser)
    speed = parser.add_argument_group(SPEED_GROUP)
    add_settings(speed, SPEED_SETTINGS)
    parser.add_argument("--out", help="the plan file to write")
    parser.add_argument("--output_dir", help="where to save the smaller model and its plan")
    parser.add_argument(
        "--no_fit", action="store_true", help="do not refit the remaining weights to make up for what is removed"
    )
    parser.add_argument("--no_bench", action="store_true", help="do not time the smaller model")
    parser.add_argument("--seed", type=int, default=42, help="seed of the method's random numbers (default: 42)")
    parser.add_argument("--batch_size", type=positive, help="batch size (default: 32; clm: 8)")
    parser.add_argument("--use_cpu", action="store_true", help="use the CPU even if there is a GPU")


def run(args: argparse.Namespace, output: Output) -> None:
    method = _method(args)
    directory = _places(args)

    import torch

    from ..cost import plan_cost
    from ..runs.loading import load_for_task
    from ..runs.planning import find_plan, save_small

    loaded = load_for_task(task_settings(args), ["train", "validation"], output.say, fresh_head=False)
    planned = find_plan(
        loaded,
        method,
        fit=directory is not None and not args.no_fit,
        bench=not args.no_bench,
        seed=args.seed,
        batch_size=args.batch_size or min(BATCH_SIZE, loaded.task.kind.most_rows),
        device="cuda" if torch.cuda.is_available() and not args.use_cpu else "cpu",
        max_eval_samples=args.max_eval_samples,
        say=output.say,
    )
    before, after = plan_cost(loaded.model, planned.plan)
    sizes = size_fields(before, after)
    output.say(planned.headline(sizes["flops_ratio"]))
    title = f"{args.out or args.output_dir}: what it would do to {args.model}"
    size_table(output, title, before, after, planned.plan)
    for line in [*removed_in_words(planned.plan), *planned.remarks]:
        output.say(line)
    if args.out:
        planned.plan.save(args.out)
    if directory is not None:
        save_small(planned, loaded, directory)
        output.say(f"the smaller model is in {args.output_dir}")
    else:
        output.say(f"next: attentrim trim --model {args.model} --plan {args.out} --output_dir small")
    speedup = {"speedup_flops": sizes["flops_ratio"]}
    output.result({**_result(args, method, planned), **facts_of_plan(planned.plan), **sizes, **speedup})


def _result(args: argparse.Namespace, method: Method, planned: Planned) -> dict[str, Any]:
    return {
        "out": args.out,
        "output_dir": args.output_dir,
        "method": method.name,
        "metric": planned.metric,
        "value_before": planned.before,
        "value": planned.value,
        **planned.result,
        "speedup_measured": planned.speedup,
        "remarks": list(planned.remarks),
    }


def _method(args: argparse.Namespace) -> Method:
    """What the flags name, checked before anything is loaded."""
    flags = given_settings(args, SPEED_SETTINGS)
    name = args.method or (SPEED_METHOD if flags.keys() & {"speedup", "max_drop"} else None)
    for flag, value in (("model", args.model), ("method", name)):
        if not value:
            raise AttentrimError(f"--{flag} is missing.")
    config = {**parse_settings(args.method_config or []), **(flags_of_method(name, flags) if flags else {})}
    method = read_method(name, config)
    if method is None:
        raise MethodError("The method 'none' removes nothing: there is no plan to make.")
    method.check_search()
    return method


def _places(args: argparse.Namespace) -> Path | None:
    """Where the smaller model goes, if anywhere; what could not be written is refused before anything is computed."""
    from ..runs.directories import check_output_dir, check_output_file

    if not args.out and not args.output_dir:
        raise AttentrimError(
            "Nothing to write: give --out PLAN.json, --output_dir DIRECTORY for the smaller model, or both."
        )
    if args.out:
        check_output_file(args.out)
    return check_output_dir(args.output_dir, args.model) if args.output_dir else None
