"""attentrim show: the attention of a model, site by site."""

from __future__ import annotations

import argparse
from typing import Any

from .output import Output, megabytes, positive

HELP = "list the attention sites of a model, the heads it kept, and its size"
EXAMPLES = """  attentrim show --model bert-base-uncased
  attentrim show --model ./small --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a model directory or hub name")
    parser.add_argument(
        "--length", type=positive, default=128, help="sequence length for counting FLOPs (default: 128)"
    )


def run(args: argparse.Namespace, output: Output) -> None:
    from .models import load_model

    data = describe(load_model(args.model), args.length)
    rows = [
        (site["index"], site["path"], f"{site['heads']} of {site['heads_before']}", site["head_size"], site["kind"])
        for site in data["sites"]
    ]
    output.table(f"{args.model} ({data['model_type']})", ("site", "module", "heads", "size", "attention"), rows)
    output.say(
        f"{data['parameters']:,} parameters, {megabytes(data['bytes'])}, "
        f"{data['flops'] / 1e9:.2f} GFLOPs for one sequence of {data['length']} tokens"
    )
    if data["trimmed"]:
        output.say(f"trimmed: {data['sparsity']:.1%} of heads removed, {data['uniform_sites']} uniform sites")
    output.result(data)


def describe(model: Any, length: int) -> dict[str, Any]:
    from ..checkpoint import stored_plan
    from ..cost import cost
    from ..sites import find_sites

    plan = stored_plan(model)
    sites = [
        {
            "index": site.index,
            "path": site.path,
            "heads": site.heads,
            "heads_before": plan.sites[site.index].heads if plan else site.heads,
            "groups": site.groups,
            "head_size": site.head_size,
            "uniform": site.uniform,
            "kind": _kind(site),
        }
        for site in find_sites(model)
    ]
    sizes = cost(model, batch=1, length=length)
    return {
        "model_type": model.config.model_type,
        "sites": sites,
        "parameters": sizes.parameters,
        "bytes": sizes.bytes,
        "flops": sizes.flops,
        "length": sizes.length,
        "trimmed": plan is not None,
        "sparsity": plan.sparsity if plan else 0.0,
        "uniform_sites": len(plan.uniform) if plan else 0,
    }


def _kind(site: Any) -> str:
    if not site.heads and not site.uniform:
        return "none (bias only)"
    reach = "causal" if site.causal else "full"
    reach += f", window {site.window}" if site.window else ""
    return f"uniform ({reach})" if site.uniform else reach
