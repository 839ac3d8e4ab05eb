"""What the result of a run says about its model beside the metrics. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..plan import Plan

REMOVED = ("sparsity", "heads_total", "heads_kept", "uniform_sites")
"""Keys that say what was removed."""


def removed(plan: Plan) -> dict[str, Any]:
    """What a plan removes, as results of all commands say it."""
    return {
        "sparsity": plan.sparsity,
        "heads_total": plan.heads_total,
        "heads_kept": plan.heads_kept,
        "uniform_sites": list(plan.uniform),
    }


def removed_in_words(result: Mapping[str, Any]) -> list[str]:
    """The same site by site, for people."""
    kept = " ".join(str(count) for count in result["heads_kept"])
    lines = [f"heads kept by site: {kept} ({result['sparsity']:.1%} removed)"]
    if result["uniform_sites"]:
        lines.append(f"uniform sites: {', '.join(str(site) for site in result['uniform_sites'])}")
    return lines


def removed_in_short(result: Mapping[str, Any]) -> str:
    """The same in half a line."""
    return f"{result['sparsity']:.1%} of the heads removed, {len(result['uniform_sites'])} sites uniform"


def facts(final: Any, plan: Plan) -> dict[str, Any]:
    """What was removed, and what the final model is."""
    from ..checkpoint import stored_plan

    return {
        **removed(plan),
        "parameters": sum(parameter.numel() for parameter in final.parameters()),
        "trimmed": stored_plan(final) is not None,
    }
