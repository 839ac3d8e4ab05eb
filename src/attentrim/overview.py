"""What a model's attention is like, in a few lines: for a terminal and for a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sites import Site

BAR = 12
"""Characters, or ems, that a full bar takes."""


@dataclass(frozen=True)
class SiteSummary:
    index: int
    path: str
    heads: int
    heads_before: int
    """Of the model before it was trimmed."""
    groups: int
    head_size: int
    uniform: bool
    kind: str

    @property
    def kept(self) -> str:
        return "uniform" if self.uniform else f"{self.heads} of {self.heads_before}"


@dataclass(frozen=True)
class Summary:
    """Print it, or let a notebook show it."""

    name: str
    """Of the model's class."""
    model_type: str
    sites: tuple[SiteSummary, ...]
    parameters: int
    bytes: int
    flops: int
    length: int
    """Tokens that the FLOPs were counted for."""
    trimmed: bool
    sparsity: float
    made_by: dict[str, Any] = field(default_factory=dict)

    @property
    def uniform_sites(self) -> int:
        return sum(site.uniform for site in self.sites)

    @property
    def headline(self) -> str:
        heads, before = sum(site.heads for site in self.sites), sum(site.heads_before for site in self.sites)
        uniform = f", {self.uniform_sites} uniform sites" if self.uniform_sites else ""
        by = f" (by {self.made_by['method']})" if self.trimmed and self.made_by.get("method") else ""
        removed = f", {self.sparsity:.1%} removed{by}" if self.trimmed else ""
        return f"{self.name}: {heads} of {before} heads in {len(self.sites)} sites{removed}{uniform}"

    @property
    def sizes(self) -> str:
        return (
            f"{self.parameters:,} parameters, {self.bytes / 1e6:.1f} MB, {self.flops / 1e9:.2f} GFLOPs for one "
            f"sequence of {self.length} tokens"
        )

    def __str__(self) -> str:
        path = max((len(site.path) for site in self.sites), default=0)
        lines = [
            f"{site.index:>4}  {site.path:<{path}}  {_bar(site):<{BAR}}  {site.kept:>9}  {site.kind}"
            for site in self.sites
        ]
        return "\n".join([self.headline, *(line.rstrip() for line in lines), self.sizes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{site.index}</td><td style='text-align:left'><code>{escape(site.path)}</code></td>"
            f"<td style='text-align:left'>{_html_bar(site)}</td><td>{site.kept}</td>"
            f"<td style='text-align:left'>{escape(site.kind)}</td></tr>"
            for site in self.sites
        )
        head = "".join(f"<th>{name}</th>" for name in ("site", "module", "", "heads", "attention"))
        return (
            f"<p><strong>{escape(self.headline)}</strong></p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
            f"</table><p>{escape(self.sizes)}</p>"
        )


def summary(model: Any, length: int = 128) -> Summary:
    """The attention of a model, site by site, and what the model costs; trimmed models say what they lost.

        print(attentrim.summary(model))

    FLOPs are those of one sequence of `length` tokens.
    """
    from .checkpoint.stored import stored_plan
    from .cost import cost
    from .sites import find_sites, unwrap

    inner = unwrap(model)
    plan = stored_plan(inner)
    sizes = cost(inner, batch=1, length=length)
    return Summary(
        type(inner).__name__,
        inner.config.model_type,
        tuple(
            SiteSummary(
                site.index,
                site.path,
                site.heads,
                plan.sites[site.index].heads if plan else site.heads,
                site.groups,
                site.head_size,
                site.uniform,
                _kind(site),
            )
            for site in find_sites(inner)
        ),
        sizes.parameters,
        sizes.bytes,
        sizes.flops,
        sizes.length,
        plan is not None,
        plan.sparsity if plan else 0.0,
        dict(plan.made_by) if plan else {},
    )


def _kind(site: Site) -> str:
    if not site.heads and not site.uniform:
        return "none (bias only)"
    reach = "causal" if site.causal else "full"
    reach += f", window {site.window}" if site.window else ""
    return f"uniform ({reach})" if site.uniform else reach


def _share(site: SiteSummary) -> float:
    return site.heads / site.heads_before if site.heads_before else 0.0


def _bar(site: SiteSummary) -> str:
    if site.uniform:
        return "-" * BAR
    filled = round(BAR * _share(site))
    return "#" * filled + "." * (BAR - filled)


def _html_bar(site: SiteSummary) -> str:
    filled = "repeating-linear-gradient(90deg,#8c8c8c 0 4px,transparent 4px 8px)" if site.uniform else "#0072b2"
    width = 100 if site.uniform else round(100 * _share(site))
    return (
        f"<div style='width:8em;height:0.8em;background:#8884;border-radius:2px' role='img' aria-label='{site.kept}'>"
        f"<div style='width:{width}%;height:100%;background:{filled};border-radius:2px'></div></div>"
    )
