"""attentrim show: a model layer by layer."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from .output import Output, positive

HELP = "show what is left in each layer of a model, and its size"
EXAMPLES = """  attentrim show --model bert-base-uncased
  attentrim show --model ./small --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory, GGUF file or hub name")
    parser.add_argument(
        "--length", type=positive, default=128, help="sequence length for counting FLOPs (default: 128)"
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from ..overview import summary
    from ..runs.models import load_model, silence_libraries

    silence_libraries()
    found = summary(load_model(args.model), args.length)
    kinds = [site.kind for site in found.sites]
    whole = len(kinds) == len(found.layers.rows)  # else a layer, and its site, are gone
    columns = ("layer", "module", *found.layers.columns, *(["attention"] if whole else []))
    rows = [
        (row.index, row.path, *(cell.text for cell in row.cells), *([kinds[row.index]] if whole else []))
        for row in found.layers.rows
    ]
    output.table(f"{args.model} ({found.model_type})", columns, rows)
    output.say(found.sizes)
    output.say(f"removed: {', '.join(found.removed)}" if found.removed else "nothing was removed")
    data = asdict(found)
    facts = data.pop("facts")
    output.result({**data, **facts, "sites": list(data["sites"]), "trimmed": bool(found.removed)})
