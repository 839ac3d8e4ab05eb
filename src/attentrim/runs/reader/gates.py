"""Head gates over training, in the numbering of the full model: a run may start from a trimmed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .files import HISTORY, PLAN

if TYPE_CHECKING:
    from ...plan import Plan

Lines = Sequence[Mapping[str, Any]]
MOST_CELLS = 2**24
"""Gates of all heads at all steps: of longer histories of wider models, fewer steps are shown."""
MOST_EVENTS = 1000
"""Of one head."""
Events = dict[tuple[int, int], list[tuple[int, bool]]]
"""By site and head: (step, whether the gate opened), in order."""


@dataclass(frozen=True)
class Gates:
    """Head gates at one step, by site and head in the numbering of the full model. None: there is no such head."""

    step: int
    open: list[list[bool | None]]
    values: list[list[float | None]] | None = None
    """Gate parameters, or the scores that heads were chosen by."""

    @property
    def count(self) -> int:
        return sum(gate is True for site in self.open for gate in site)


@dataclass(frozen=True)
class Layout:
    """Which heads the gates of a history stand for."""

    start: list[list[int]]
    """By site, the heads that the run started with, as the full model numbers them."""
    width: list[int]
    """How many heads each site of the full model has."""

    @classmethod
    def of(cls, history: Lines, plan: Plan | None) -> Layout:
        if plan is not None:
            whole = [list(range(site.heads)) for site in plan.shapes["sites"]]
        else:
            whole = [list(range(len(row))) for row in first(history, "gates") or []]
        start = [list(heads) for heads in first(history, "heads") or whole]
        width = [max(heads, default=-1) + 1 for heads in (whole if plan is not None else start)]
        return cls(start, width)

    @property
    def present(self) -> list[int]:
        """The sites that had heads."""
        return [index for index, heads in enumerate(self.start) if heads]

    def spread(self, rows: Sequence[Sequence[Any]], kind: Callable[[Any], Any]) -> list[list[Any]]:
        """Rows by site with heads and by group of heads, laid out by site and head of the full model."""
        result: list[list[Any]] = [[None] * width for width in self.width]
        for site, row in zip(self.present, rows, strict=False):
            heads = self.start[site]
            size = max(1, len(heads) // max(1, len(row)))
            for position, head in enumerate(heads):
                if position // size < len(row) and row[position // size] is not None:
                    result[site][head] = kind(row[position // size])
        return result

    def behind(self, site: int, gate: int, gates: int | None) -> list[int]:
        """The heads that a gate of a site stands for; `gates`: how many the site has, one per head if not known."""
        heads = self.start[site] if site < len(self.start) else []
        size = max(1, len(heads) // max(1, len(heads) if gates is None else gates))
        return heads[gate * size : (gate + 1) * size]


def first(history: Lines, name: str) -> Any:
    """What the first line that has it says under a name."""
    return next((line[name] for line in history if line.get(name)), None)


def gates_over_training(history: Lines, layout: Layout) -> list[Gates]:
    """The gates at each recorded step; of several lines at one step, the last."""
    found: dict[int, Gates] = {}
    recorded = [line for line in history if line.get("gates")]
    room = max(2, MOST_CELLS // (1 + sum(layout.width)))
    for line in recorded if len(recorded) <= room else (*recorded[:: -(-len(recorded) // room)], recorded[-1]):
        values = line.get("gate_parameters") or line.get("scores")
        found[int(line["step"])] = Gates(
            int(line["step"]),
            layout.spread(line["gates"], bool),
            layout.spread(values, float) if values else None,
        )
    return list(found.values())


def gate_events(history: Lines, layout: Layout) -> Events:
    """When each head's gate closed and opened again."""
    found: Events = {}
    sizes = dict(zip(layout.present, map(len, first(history, "gates") or []), strict=False))
    for line in history:
        for name, opened in (("closed", False), ("reopened", True)):
            for step, site, gate in line.get(name) or []:
                for head in layout.behind(site, gate, sizes.get(site)):
                    happened = found.setdefault((site, head), [])
                    if len(happened) < MOST_EVENTS:
                        happened.append((step, opened))
    return {key: sorted(happened) for key, happened in found.items()}


def mismatch(history: Lines, plan: Plan) -> str | None:
    """Why the gates of a history cannot be told by the heads of a plan; None where they can."""
    known, rows = first(history, "heads"), first(history, "gates") or []
    if known is not None:
        fits = len(known) == len(plan.shapes["sites"]) and all(
            set(heads) <= set(range(site.heads)) for heads, site in zip(known, plan.shapes["sites"], strict=True)
        )
        fits = fits and (not rows or len(rows) == sum(bool(heads) for heads in known))
        return None if fits else f"{HISTORY} is from another model than {PLAN}"
    fits = not rows or [len(row) for row in rows] == [site.groups for site in plan.shapes["sites"] if site.heads]
    return None if fits else f"{HISTORY} does not say which heads its gates are of"
