"""What the result of a run says about its model beside the metrics. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..cost import Cost
    from ..plan import Plan


def facts_of_plan(plan: Plan) -> dict[str, Any]:
    """What a plan removes, as results of all commands say it; `removed` is the same for people."""
    return {**plan.facts(), "removed": plan.describe()}


def removed_in_words(plan: Plan) -> list[str]:
    """What was removed in all, and what is left layer by layer."""
    from ..breakdown import breakdown

    kept = breakdown(plan).kept()
    lines = [f"{name} kept by layer: {' '.join(counts)}" for name, counts in kept.items()]
    return [f"removed: {', '.join(plan.describe()) or 'nothing'}", *lines]


def removed_in_short(result: Mapping[str, Any]) -> str:
    return ", ".join(result.get("removed") or []) or "nothing"


def facts(final: Any, plan: Plan, before: Cost, after: Cost) -> dict[str, Any]:
    """What was removed, and what the final model is."""
    from ..checkpoint.stored import stored_plan

    ratio = before.flops / after.flops if after.flops else 0.0
    return {
        **facts_of_plan(plan),
        "parameters": after.parameters,
        "flops_ratio": ratio,
        "speedup_flops": ratio,
        "trimmed": stored_plan(final) is not None,
    }
