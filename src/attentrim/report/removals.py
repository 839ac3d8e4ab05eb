"""What a run removed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import AttentrimError
from ..methods import METHODS
from ..runs.reader import Recorded


@dataclass(frozen=True)
class RemovedHead:
    site: int
    head: int
    score: float | None
    """Its gate parameter or score at the end."""
    rank: int | None
    """Among all heads, 1 being the lowest score."""
    closed: int | None
    """The step at which its gate closed for good."""
    reopened: int
    """How often it had opened again before."""


@dataclass(frozen=True)
class SiteFate:
    index: int
    path: str
    heads: int
    kept: int
    removed: tuple[int, ...]
    before: tuple[int, ...]
    """Removed already when the run began."""
    uniform: bool
    uniform_before: bool
    """Uniform already when the run began."""
    rate: float | None
    """How often the generator dropped its attention, where there was one."""


def reason(run: Recorded) -> str:
    """By what the method chose, in a sentence."""
    if run.method == "none":
        return "Plain fine-tuning: nothing was removed."
    if run.method not in list(METHODS):
        return ""
    settings = run.config.get("method_config") or run.made_by.get("settings") or {}
    try:
        return METHODS[run.method].from_settings(settings).reason
    except (AttentrimError, TypeError, ValueError):
        return ""


def fates(run: Recorded) -> list[SiteFate]:
    if run.plan is None:
        return []
    plan = run.plan
    rates: dict[str, Any] = _rates(run)
    found = []
    for index, site in enumerate(plan.sites):
        there = set(run.start[index]) if index < len(run.start) else set(range(site.heads))
        removed = plan.heads.get(index, ())
        found.append(
            SiteFate(
                index,
                site.path,
                site.heads,
                plan.heads_kept[index],
                tuple(head for head in removed if head in there),
                tuple(head for head in removed if head not in there),
                index in plan.uniform or site.uniform,
                site.uniform or (index in plan.uniform and not there),
                rates.get(str(index)),
            )
        )
    return found


def removed_heads(run: Recorded) -> list[RemovedHead]:
    """Those that this run itself removed, lowest score first where there are scores."""
    scores = next((gates.values for gates in reversed(run.gates) if gates.values), None)
    flat = sorted(value for row in scores or [] for value in row if value is not None)
    events = run.events()
    found = []
    for fate in fates(run):
        for head in fate.removed:
            score = scores[fate.index][head] if scores else None
            happened = events.get((fate.index, head), [])
            closings = [step for step, opened in happened if not opened]
            found.append(
                RemovedHead(
                    fate.index,
                    head,
                    score,
                    None if score is None else flat.index(score) + 1,
                    closings[-1] if closings else None,
                    sum(opened for _, opened in happened),
                )
            )
    return sorted(found, key=lambda entry: (entry.score is None, entry.score, entry.site, entry.head))


def _rates(run: Recorded) -> dict[str, Any]:
    """Drop rates by site, as the plan gives them or as last recorded."""
    made = run.made_by
    while "then" in made:
        made = made["then"]
    if made.get("drop_rates"):
        return dict(made["drop_rates"])
    steps, rows = run.by_site("drop_rates")
    sites = [index for index, heads in enumerate(run.start) if heads]
    return {str(site): rate for site, rate in zip(sites, rows[-1], strict=False)} if steps else {}
