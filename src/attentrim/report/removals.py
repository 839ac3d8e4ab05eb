"""What a run removed, and why: all that the report says about it in words and numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..guarded import is_number
from ..runs.reader import Recorded
from .figures import Numbers
from .tiles import Tile


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
class SiteOutcome:
    """What became of one site."""

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
    """By what the method chose, in its own words; nothing where the run does not say."""
    if run.method == "none":
        return "Plain fine-tuning: nothing was removed."
    made = _last_made_by(run)
    return str(made.get("reason") or "") if made.get("method") == run.method else ""


def outcomes(run: Recorded) -> list[SiteOutcome]:
    if run.plan is None:
        return []
    plan = run.plan
    kept, uniform = plan.heads_kept, set(plan.uniform)
    rates = _rates(run)
    found = []
    for index, site in enumerate(plan.shapes["sites"]):
        there = set(run.start[index]) if index < len(run.start) else set(range(site.heads))
        removed = plan.heads.get(index, ())
        found.append(
            SiteOutcome(
                index,
                site.path,
                site.heads,
                kept[index],
                tuple(head for head in removed if head in there),
                tuple(head for head in removed if head not in there),
                index in uniform or site.uniform,
                site.uniform or (index in uniform and not there),
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
    for site in outcomes(run):
        for head in site.removed:
            score = scores[site.index][head] if scores else None
            happened = events.get((site.index, head), [])
            closings = [step for step, opened in happened if not opened]
            found.append(
                RemovedHead(
                    site.index,
                    head,
                    score,
                    None if score is None else bisect_left(flat, score) + 1,
                    closings[-1] if closings else None,
                    sum(opened for _, opened in happened),
                )
            )
    return sorted(found, key=lambda entry: (entry.score is None, entry.score, entry.site, entry.head))


def removed_in_words(run: Recorded) -> str:
    """What is gone, and whether this run did all of that."""
    if not run.plan:
        return f"Nothing was removed from {run.model}."
    gone = ", ".join(run.plan.describe())
    how = "Removed from" if run.metrics.get("trimmed") else "Switched off in"
    earlier = " (in part before this run)" if "then" in run.made_by else ""
    if run.method == "none":
        earlier = " (before this run)"
    return f"{how} {run.model}{earlier}: {gone}."


def layers_table(run: Recorded) -> Numbers | None:
    """What is left, one row per layer and one column for each type of block in a layer."""
    if not run.plan:
        return None
    from ..breakdown import breakdown

    found = breakdown(run.plan)
    rows = [[str(row.index), row.path, *(cell.text for cell in row.cells)] for row in found.rows]
    return Numbers(["layer", "module", *found.columns], rows)


def removal_tiles(run: Recorded) -> list[Tile]:
    """How much is left of every kind."""
    if run.plan is None:
        return []
    tiles = []
    for left in run.plan.left():
        value = f"{left.kept:,} of {left.total:,}"
        tiles.append(Tile(left.label, value, left.note, left.kept, left.key))
    return tiles


def columns(runs: Sequence[Recorded]) -> list[str]:
    """Of the table of several runs: every kind of which something is left in one of them."""
    return list(dict.fromkeys(left.label for run in runs if run.plan is not None for left in run.plan.left()))


def cells(run: Recorded, names: Sequence[str]) -> list[str]:
    """What these columns hold for a run."""
    left = run.plan.left() if run.plan else []
    found = {
        one.label: f"{one.kept:,} of {one.total:,}" + (f", {one.apart} {one.remark}" if one.apart else "")
        for one in left
    }
    return [found.get(name, "") for name in names]


def _last_made_by(run: Recorded) -> Mapping[str, Any]:
    """How the last of the plans that were put together came about."""
    made = run.made_by
    while isinstance(made.get("then"), Mapping):
        made = made["then"]
    return made


def _rates(run: Recorded) -> dict[str, Any]:
    """Drop rates by site, as the plan gives them or as last recorded."""
    made = _last_made_by(run)
    if isinstance(made.get("drop_rates"), Mapping):
        return {site: rate for site, rate in made["drop_rates"].items() if is_number(rate)}
    steps, rows = run.by_site("drop_rates")
    sites = [index for index, heads in enumerate(run.start) if heads]
    return {str(site): rate for site, rate in zip(sites, rows[-1], strict=False)} if steps else {}
