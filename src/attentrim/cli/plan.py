"""attentrim plan: choose what to remove without training."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import AttentrimError, MethodError
from .arguments import add_method_arguments, add_task_arguments, parse_settings, read_method
from .output import Output, positive, size_fields, size_table

HELP = "let a method score the heads of a trained model and write a plan, without training"
EXAMPLES = """  attentrim plan --model fine-tuned --task cola --data_dir glue/CoLA --method hisp --out plan.json
  attentrim plan --model fine-tuned --task cola --data_dir glue/CoLA --method random-heads \\
      --method_config target_sparsity=0.25 --out plan.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_task_arguments(parser)
    add_method_arguments(parser)
    parser.add_argument("--out", required=True, help="the plan file to write")
    parser.add_argument("--seed", type=int, default=42, help="of the method's random numbers (default: 42)")
    parser.add_argument("--batch_size", type=positive, default=32, help="examples at a time (default: 32)")
    parser.add_argument("--use_cpu", action="store_true", help="stay on the CPU")


def run(args: argparse.Namespace, output: Output) -> None:
    from pathlib import Path

    for name in ("model", "method"):
        if not getattr(args, name):
            raise AttentrimError(f"--{name} is missing.")
    method = read_method(args.method, parse_settings(args.method_config or []))
    if method is None:
        raise MethodError("The method 'none' removes nothing: there is no plan to make.")
    if not Path(args.out).resolve().parent.is_dir() or Path(args.out).is_dir():
        raise AttentrimError(f"Cannot write {args.out}: it must be a file in a directory that exists.")

    import torch
    from torch.utils.data import DataLoader, Subset

    from ..cost import plan_cost
    from .tasks import load_for_task

    loaded = load_for_task(args, ["train"], output, fresh_head=False)
    data: Any = loaded.data("train")
    samples = min(method.data.calibration or 1, len(data))
    generator = torch.Generator().manual_seed(args.seed)
    chosen = Subset(data, torch.randperm(len(data), generator=generator)[:samples].tolist())
    batches = DataLoader(chosen, args.batch_size, collate_fn=loaded.task.how.collator(loaded.tokenizer))
    device = "cuda" if torch.cuda.is_available() and not args.use_cpu else "cpu"
    plan = method.search(loaded.model.to(device), calibration=batches, seed=args.seed)
    plan.save(args.out)
    before, after = plan_cost(loaded.model, plan)
    size_table(output, f"{args.out}: what it would do to {args.model}", before, after)
    output.say(f"heads kept by site: {' '.join(str(count) for count in plan.heads_kept)}")
    output.say(f"next: attentrim trim --model {args.model} --plan {args.out} --output_dir small")
    output.result(
        {
            "out": args.out,
            "method": args.method,
            **plan.facts(),
            **size_fields(before, after),
        }
    )
