"""Attention dropout at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from ..regulariser import RegulariserSession, bernoulli

if TYPE_CHECKING:
    from . import AttentionDropout


class AttentionDropoutSession(RegulariserSession):
    method: AttentionDropout

    def draw(self) -> None:
        if not self.method.p:
            return
        for site in self.sites:
            if self.method.on == "scores":
                self.control.set_score_mask(site.index, bernoulli(1 - self.method.p))
            else:
                self.control.set_weight_mask(site.index, self.factors)

    def factors(self, allowed: Tensor) -> Tensor:
        """0 for dropped pairs; 1, or what keeps the expectation, for the others (eq. 2 has no rescaling)."""
        kept = bernoulli(1 - self.method.p)(allowed).float()
        return kept / (1 - self.method.p) if self.method.rescale else kept
