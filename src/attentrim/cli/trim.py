"""attentrim trim: take what a plan removes out of a model, and save it."""

from __future__ import annotations

import argparse

from ..errors import AttentrimError
from .output import Output, size_fields, size_table

HELP = "remove the attention that a plan names, and save the smaller model"
EXAMPLES = """  attentrim trim --model ./fine-tuned --plan plan.json --output_dir ./small
  attentrim trim --model ./fine-tuned --heads 0:1,5 3:0 --uniform 10 11 --output_dir ./small
  attentrim trim --model ./fine-tuned --plan plan.json --output_dir ./stock --portable"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory or hub name")
    parser.add_argument("--plan", help="a plan file")
    parser.add_argument(
        "--heads", nargs="+", metavar="SITE:HEADS", help="heads to remove, such as 0:1,5 (no plan file)"
    )
    parser.add_argument("--uniform", nargs="+", type=int, metavar="SITE", help="sites to make uniform (no plan file)")
    parser.add_argument("--output_dir", required=True, help="where to save the result")
    parser.add_argument(
        "--portable", action="store_true", help="keep the full shape, so that it loads without attentrim (not smaller)"
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..runs.directories import check_output_dir, copy_companions

    heads = parse_heads(args.heads or [])
    if bool(args.plan) == bool(args.heads or args.uniform):
        raise AttentrimError("Say what to remove: either --plan, or --heads and --uniform.")
    output_dir = check_output_dir(args.output_dir, args.model)

    from ..card import try_card
    from ..checkpoint import stored_plan
    from ..cost import cost
    from ..plan import Plan
    from ..runs.facts import removed
    from ..runs.models import load_model
    from ..surgery import portable, trim

    plan = Plan.load(args.plan) if args.plan else None
    model = load_model(args.model)
    plan = plan or Plan.of(model, heads=heads, uniform=args.uniform or (), made_by={"method": "by hand"})
    small = (portable if args.portable else trim)(model, plan)
    before, after = cost(model), cost(small)
    small.save_pretrained(output_dir)
    # what the checkpoint is, in the full model's numbering, even if this was its second trim
    whole = stored_plan(small) or plan
    whole.save(output_dir / "plan.json")
    copied = copy_companions(args.model, output_dir)
    try_card(output_dir, small, base=args.model)

    size_table(output, "portable" if args.portable else "trimmed", before, after)
    output.say(f"saved to {output_dir}" + (f", with {len(copied)} files from beside the model" if copied else ""))
    needs = "" if args.portable else "import attentrim; "
    output.say(f"load it with: {needs}{type(small).__name__}.from_pretrained({args.output_dir!r})")
    output.result(
        {
            "output_dir": args.output_dir,
            "portable": args.portable,
            **removed(whole),
            **size_fields(before, after),
        }
    )


def parse_heads(items: list[str]) -> dict[int, list[int]]:
    """['0:1,5', '3:0'] -> {0: [1, 5], 3: [0]}"""
    heads: dict[int, list[int]] = {}
    for item in items:
        site, separator, numbers = item.partition(":")
        try:
            if not separator or int(site) in heads:
                raise ValueError
            heads[int(site)] = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise AttentrimError(f"--heads takes SITE:HEADS, each site once, such as 0:1,5. Got {item!r}.") from None
    return heads
