"""The units that gates open and close, numbered through in one vector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..control import Control
from ..sites import Site


class HeadUnits:
    """One gate per head (per key/value group where keys are shared), over all sites that have heads left."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = [site for site in sites if site.heads]
        self.sizes = [site.groups for site in self.sites]
        """Gates by site."""
        self.count = sum(self.sizes)

    def locate(self, gate: int) -> tuple[int, int]:
        """(site, gate within the site)"""
        for site, size in zip(self.sites, self.sizes, strict=True):
            if gate < size:
                return site.index, gate
            gate -= size
        raise IndexError(gate)

    def apply(self, control: Control, gates: Tensor | None) -> None:
        """Put a vector [gates] or [batch, gates] onto the model; None: nothing is gated."""
        if gates is None:
            control.clear()
            return
        control.set_all("heads", gates)

    def removed(self, open_gates: Tensor) -> dict[int, list[int]]:
        """The heads behind closed gates, by site, as a plan lists them."""
        closed = (open_gates == 0).cpu().split(self.sizes)
        return {
            site.index: [head for group in part.nonzero().flatten().tolist() for head in site.group(group)]
            for site, part in zip(self.sites, closed, strict=True)
        }

    def by_site(self, values: Tensor) -> list[list[float]]:
        """One number per gate, for the history."""
        return [[round(value, 4) for value in part.tolist()] for part in values.split(self.sizes)]
