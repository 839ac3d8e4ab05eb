"""What a model is made of, in a few lines: for a terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from .breakdown import Breakdown, Cell, breakdown
from .checkpoint.stored import full_size, stored_plan
from .cost import cost
from .plan import Plan
from .sites import Site, find_sites, unwrap

BAR = 12
"""Characters, or ems, that a full bar takes."""


@dataclass(frozen=True)
class SiteSummary:
    """One self-attention site of the model as it is."""

    index: int
    path: str
    heads: int
    heads_before: int
    """Of the full model."""
    groups: int
    head_size: int
    uniform: bool
    kind: str


@dataclass(frozen=True)
class Summary:
    """Print it, or let a notebook show it."""

    name: str
    """Of the model's class."""
    model_type: str
    sites: tuple[SiteSummary, ...]
    layers: Breakdown
    """What is left of each layer of the full model."""
    facts: Mapping[str, Any]
    """What was removed, by kind: sparsity, heads_kept, neurons_kept, ..."""
    removed: tuple[str, ...]
    """The same for people; empty if nothing was."""
    parameters: int
    bytes: int
    flops: int
    length: int
    """Tokens that the FLOPs were counted for."""
    flops_ratio: float | None
    """FLOPs of the full model over those of this one; None where they are not known."""
    made_by: Mapping[str, Any] = field(default_factory=dict)
    cache_bytes_per_token: int | None = None
    """Of keys and values, while the model generates; None for models that do not."""

    @property
    def headline(self) -> str:
        if not self.removed:
            return f"{self.name}: {len(self.layers.rows)} layers, nothing removed"
        by = f" (by {self.made_by['method']})" if self.made_by.get("method") else ""
        return f"{self.name}: removed{by}: {', '.join(self.removed)}"

    @property
    def sizes(self) -> str:
        ratio = (
            "" if self.flops_ratio is None or not self.removed else f", {self.flops_ratio:.2f} times fewer than before"
        )
        cache = "" if self.cache_bytes_per_token is None else f"; key/value cache: {self.cache}"
        return (
            f"{self.parameters:,} parameters, {self.bytes / 1e6:.1f} MB, {self.flops / 1e9:.2f} GFLOPs for one "
            f"sequence of {self.length} tokens{ratio}{cache}"
        )

    @property
    def cache(self) -> str:
        """'23,040 bytes per token'"""
        windowed = any("window" in site.kind for site in self.sites)
        note = " (sites with a window keep no more tokens than it holds)" if windowed else ""
        return f"{self.cache_bytes_per_token:,} bytes per token{note}"

    def __str__(self) -> str:
        path = max((len(row.path) for row in self.layers.rows), default=0)
        widths = [
            max((len(row.cells[column].text) for row in self.layers.rows), default=0)
            for column in range(len(self.layers.columns))
        ]
        lines = []
        for row in self.layers.rows:
            cells = (
                f"{name} {_bar(cell)} {cell.text:>{width}}"
                for name, cell, width in zip(self.layers.columns, row.cells, widths, strict=True)
            )
            lines.append(f"{row.index:>4}  {row.path:<{path}}  {'  '.join(cells)}".rstrip())
        return "\n".join([self.headline, *lines, self.sizes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{row.index}</td><td style='text-align:left'><code>{escape(row.path)}</code></td>"
            + "".join(f"<td style='text-align:left'>{_html_bar(cell)}</td><td>{cell.text}</td>" for cell in row.cells)
            + "</tr>"
            for row in self.layers.rows
        )
        names = ("layer", "module", *(name for column in self.layers.columns for name in ("", column)))
        head = "".join(f"<th>{name}</th>" for name in names)
        return (
            f"<p><strong>{escape(self.headline)}</strong></p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
            f"</table><p>{escape(self.sizes)}</p>"
        )


def summary(model: Any, length: int = 128) -> Summary:
    """A model layer by layer, and what it costs; trimmed models say what they lost.

        print(attentrim.summary(model))

    FLOPs are those of one sequence of `length` tokens.
    """
    inner = unwrap(model)
    stored = stored_plan(inner)
    plan = stored or Plan.of(inner)
    sizes = cost(inner, batch=1, length=length)
    before = full_size(inner) if stored else {"flops": sizes.flops, "length": sizes.length}
    known = before.get("flops") if before.get("length") == sizes.length else None
    sites = find_sites(inner)
    full = [shape for shape, final in zip(plan.shapes["sites"], plan.final("sites"), strict=True) if final]
    return Summary(
        type(inner).__name__,
        inner.config.model_type,
        tuple(
            SiteSummary(
                site.index,
                site.path,
                site.heads,
                shape.heads,
                site.groups,
                site.head_size,
                site.uniform,
                attention_kind(site),
            )
            for site, shape in zip(sites, full, strict=True)
        ),
        breakdown(plan),
        plan.facts(),
        tuple(plan.describe()),
        sizes.parameters,
        sizes.bytes,
        sizes.flops,
        sizes.length,
        known / sizes.flops if known and sizes.flops else None,
        dict(plan.made_by),
        sizes.cache_bytes_per_token,
    )


def attention_kind(site: Site) -> str:
    """What a site's attention is like, in words."""
    if not site.heads and not site.uniform:
        return "none (bias only)"
    reach = "causal" if site.causal else "full"
    reach += f", window {site.window}" if site.window else ""
    return f"uniform ({reach})" if site.uniform else reach


def _bar(cell: Cell) -> str:
    if cell.share is None:
        return "-" * BAR
    filled = round(BAR * cell.share)
    return "#" * filled + "." * (BAR - filled)


def _html_bar(cell: Cell) -> str:
    other = "repeating-linear-gradient(90deg,#8c8c8c 0 4px,transparent 4px 8px)"
    filled, width = (other, 100) if cell.share is None else ("#0072b2", round(100 * cell.share))
    return (
        f"<div style='width:8em;height:0.8em;background:#8884;border-radius:2px' role='img' aria-label='{cell.text}'>"
        f"<div style='width:{width}%;height:100%;background:{filled};border-radius:2px'></div></div>"
    )
