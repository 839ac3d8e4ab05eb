"""attentrim plan: choose what to remove without training."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttentrimError, MethodError
from ..runs.facts import facts_of_plan, removed_in_words
from ..runs.headline import headline
from ..runs.settings import read_method
from .arguments import add_search_arguments, add_task_arguments, parse_settings, task_settings
from .output import Output, positive, size_fields, size_table

if TYPE_CHECKING:
    from ..methods import Method

HELP = "let a method score the heads of a trained model and write a plan, without training"
EXAMPLES = """  attentrim plan --model fine-tuned --task cola --data_dir glue/CoLA --method hisp --out plan.json
  attentrim plan --model fine-tuned --task cola --data_dir glue/CoLA --method random-heads \\
      --method_config target_sparsity=0.25 --out plan.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_search_arguments(parser)
    parser.add_argument("--out", required=True, help="the plan file to write")
    parser.add_argument("--seed", type=int, default=42, help="of the method's random numbers (default: 42)")
    parser.add_argument("--batch_size", type=positive, default=32, help="examples at a time (default: 32)")
    parser.add_argument("--use_cpu", action="store_true", help="stay on the CPU")


def run(args: argparse.Namespace, output: Output) -> None:
    method = _method(args)

    import torch

    from ..cost import plan_cost
    from ..runs.loading import load_for_task

    loaded = load_for_task(task_settings(args), ["train"], output.say, fresh_head=False)
    device = "cuda" if torch.cuda.is_available() and not args.use_cpu else "cpu"
    batches = _calibration(loaded, method, args.batch_size, args.seed)
    plan = method.search(loaded.model.to(device), calibration=batches, seed=args.seed)
    plan.save(args.out)
    before, after = plan_cost(loaded.model, plan)
    sizes = size_fields(before, after)
    output.say(headline(loaded.task.metric, None, flops_ratio=sizes["flops_ratio"]))
    size_table(output, f"{args.out}: what it would do to {args.model}", before, after, plan)
    result = {"out": args.out, "method": args.method, **facts_of_plan(plan), **sizes}
    for line in removed_in_words(plan):
        output.say(line)
    output.say(f"next: attentrim trim --model {args.model} --plan {args.out} --output_dir small")
    output.result(result)


def _method(args: argparse.Namespace) -> Method:
    """What the flags name, checked before anything is loaded."""
    for name in ("model", "method"):
        if not getattr(args, name):
            raise AttentrimError(f"--{name} is missing.")
    method = read_method(args.method, parse_settings(args.method_config or []))
    if method is None:
        raise MethodError("The method 'none' removes nothing: there is no plan to make.")
    if not Path(args.out).resolve().parent.is_dir() or Path(args.out).is_dir():
        raise AttentrimError(f"Cannot write {args.out}: it must be a file in a directory that exists.")
    return method


def _calibration(loaded: Any, method: Method, batch_size: int, seed: int) -> Any:
    """Batches of as many training examples as the method looks at, chosen at random."""
    import torch
    from torch.utils.data import DataLoader, Subset

    data = loaded.data("train")
    samples = min(method.data.calibration or 1, len(data))
    generator = torch.Generator().manual_seed(seed)
    chosen = Subset(data, torch.randperm(len(data), generator=generator)[:samples].tolist())
    return DataLoader(chosen, batch_size, collate_fn=loaded.task.kind.collator(loaded.tokenizer))
