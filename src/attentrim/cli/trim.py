"""attentrim trim: take what a plan removes out of a model, and save it."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import AttentrimError, PlanError
from ..indices import from_text, is_index
from .output import Output, size_fields, size_table
from .vocabulary import Vocabulary, add_vocabulary_arguments, wants_vocabulary

HELP = "remove what a plan lists (heads, neurons, layers, attention patterns), or tokens that your texts do not use"
EXAMPLES = """  attentrim trim --model ./fine-tuned --plan plan.json --output_dir ./small
  attentrim trim --model ./fine-tuned --heads 0:1,5 3:0 --neurons 0:0-511 --layers 10,11 --output_dir ./small
  attentrim trim --model ./fine-tuned --plan plan.json --output_dir ./stock --portable
  attentrim trim --model ./fine-tuned --vocabulary texts.txt --output_dir ./small
  attentrim trim --model ./fine-tuned --vocabulary_task sst2 --data_dir glue/SST-2 --output_dir ./small"""
FLAGS = {
    "heads": ("SITE:HEADS", "heads to remove, such as 0:1,5 (instead of --plan)"),
    "uniform": ("SITES", "sites to make uniform, such as 10,11 (instead of --plan)"),
    "neurons": ("BLOCK:NEURONS", "feed-forward neurons to remove, such as 0:0-511 (instead of --plan)"),
    "layers": ("LAYERS", "layers to remove, such as 10,11 (instead of --plan)"),
}
MOST = 2**22
"""More than any number on a command line can mean."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory, GGUF file or hub name")
    parser.add_argument("--plan", help="a plan file")
    for name, (metavar, text) in FLAGS.items():
        parser.add_argument(f"--{name}", nargs="+", metavar=metavar, help=text)
    parser.add_argument(
        "--remove", nargs="+", metavar="KIND=WHAT", help="the same for kinds of structure from plug-ins"
    )
    add_vocabulary_arguments(parser)
    parser.add_argument("--output_dir", required=True, help="where to save the result")
    parser.add_argument(
        "--portable",
        action="store_true",
        help="save in stock classes, which load without attentrim (some removed parts may stay as zeros)",
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..runs.directories import check_output_dir, copy_companions

    by_hand = _by_hand(args)
    fewer_tokens = wants_vocabulary(args)
    if (args.plan and by_hand) or not (args.plan or by_hand or fewer_tokens):
        flags = ", ".join(f"--{name}" for name in FLAGS)
        raise AttentrimError(f"Nothing to remove: give --plan, or any of {flags}, or --vocabulary.")

    from ..card import try_card
    from ..checkpoint.saving import saving
    from ..checkpoint.stored import stored_plan
    from ..cost import cost
    from ..plan import Plan
    from ..runs.facts import facts_of_plan
    from ..runs.models import load_model
    from ..structures import STRUCTURES
    from ..surgery import portable, trim, unshrunk

    removed = {name: parse(name, items, STRUCTURES[name].within) for name, items in by_hand.items()}
    output_dir = check_output_dir(args.output_dir, args.model)
    plan = Plan.load(args.plan) if args.plan else None
    vocabulary = Vocabulary.read(args, output.say) if fewer_tokens else None
    model = load_model(args.model)
    plan = plan or Plan.of(model, made_by={"method": "by hand"}, **removed)
    small = (portable if args.portable else trim)(model, plan)
    if vocabulary:
        small = vocabulary.trim(small)
    before, after = cost(model), cost(small)
    # what the checkpoint is, in the full model's numbering, even if this was its second trim
    whole = stored_plan(small) or plan
    old_files = vocabulary.files if vocabulary else ()
    with saving(output_dir, stale=old_files) as stage:
        small.save_pretrained(stage)
        if whole or not vocabulary:
            whole.save(stage / "plan.json")
        copied = copy_companions(args.model, stage, output.say, output_dir, old_files)
        if vocabulary:
            vocabulary.save(stage)
        try_card(stage, small, base=args.model, tokens=vocabulary.sizes if vocabulary else None)

    size_table(output, "portable" if args.portable else "trimmed", before, after, whole)
    removed_in_all = [*whole.describe(), *(vocabulary.describe() if vocabulary else [])]
    output.say(f"removed: {', '.join(removed_in_all) or 'nothing'}")
    for line in vocabulary.remarks if vocabulary else []:
        output.say(line)
    left = unshrunk(model, plan) if args.portable else []
    for text in left:
        output.say(f"kept, because stock classes need it: {text}")
    output.say(f"saved to {output_dir}" + (f", with {len(copied)} other files of the model" if copied else ""))
    needs = "import attentrim; " if stored_plan(small) else ""
    output.say(f"load it with: {needs}{type(small).__name__}.from_pretrained({args.output_dir!r})")
    output.result(
        {
            "output_dir": args.output_dir,
            "portable": args.portable,
            "unshrunk": left,
            **facts_of_plan(whole),
            "removed": removed_in_all,
            **(vocabulary.result() if vocabulary else {}),
            **size_fields(before, after),
        }
    )


def _by_hand(args: argparse.Namespace) -> dict[str, list[str]]:
    """What the flags name, by kind of structure."""
    found = {name: getattr(args, name) for name in FLAGS if getattr(args, name)}
    for item in args.remove or []:
        kind, separator, what = item.partition("=")
        if not separator:
            raise AttentrimError(f"--remove takes KIND=WHAT, such as heads=0:1,5. Got {item!r}.")
        found.setdefault(kind, []).append(what)
    return found


def parse(kind: str, items: list[str], within: bool) -> Any:
    """['0:1,5', '3:0-2'] -> {0: (1, 5), 3: (0, 1, 2)}; ['10,11'] -> [10, 11]"""
    try:
        if not within:
            return [number for item in items for number in from_text(item, MOST)]
        found: dict[int, tuple[int, ...]] = {}
        for item in items:
            place, separator, units = item.partition(":")
            if not separator or not is_index(place) or int(place) in found or not units:
                raise PlanError(f"{item!r}")
            found[int(place)] = from_text(units, MOST)
    except PlanError:
        named, _ = FLAGS.get(kind, ("PLACE:NUMBERS" if within else "NUMBERS", ""))
        shape = f"{named}, such as 10,11"
        if within:
            shape = f"{named}, each {named.partition(':')[0].lower()} once, such as 0:1,5 or 0:0-511"
        raise AttentrimError(f"--{kind} takes {shape}. Got {' '.join(items)!r}.") from None
    return found
