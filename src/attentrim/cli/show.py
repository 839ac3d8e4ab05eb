"""attentrim show: the attention of a model, site by site."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .output import Output, positive

HELP = "list the attention sites of a model, the heads it kept, and its size"
EXAMPLES = """  attentrim show --model bert-base-uncased
  attentrim show --model ./small --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory or hub name")
    parser.add_argument(
        "--length", type=positive, default=128, help="sequence length for counting FLOPs (default: 128)"
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..overview import summary
    from ..runs.models import load_model, silence_libraries

    silence_libraries()
    found = summary(load_model(args.model), args.length)
    rows = [
        (site.index, site.path, f"{site.heads} of {site.heads_before}", site.head_size, site.kind)
        for site in found.sites
    ]
    output.table(f"{args.model} ({found.model_type})", ("site", "module", "heads", "size", "attention"), rows)
    output.say(found.sizes)
    if found.trimmed:
        output.say(f"trimmed: {found.sparsity:.1%} of heads removed, {found.uniform_sites} uniform sites")
    data = asdict(found)
    output.result({**data, "sites": list(data["sites"]), "uniform_sites": found.uniform_sites})
