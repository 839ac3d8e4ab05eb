"""Scheduled dropout at work."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...errors import MethodError
from ..regulariser import RegulariserSession, bernoulli

if TYPE_CHECKING:
    from . import Curve, ScheduledDropout


class ScheduledDropoutSession(RegulariserSession):
    method: ScheduledDropout

    def __init__(self, method: ScheduledDropout, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        curves = method.parsed()
        if len(curves) not in (1, len(self.sites)):
            self.detach()
            raise MethodError(
                f"ScheduledDropout has {len(curves)} curves; this model has {len(self.sites)} sites: give one for "
                "all, or one per site."
            )
        self.curves = curves * len(self.sites) if len(curves) == 1 else curves

    @property
    def chances(self) -> list[float]:
        """The probability of dropping a pair now, site by site."""
        return [value_at(curve, self.progress) for curve in self.curves]

    def draw(self) -> None:
        self.require_steps()
        for site, chance in zip(self.sites, self.chances, strict=True):
            if chance:
                self.control.set_score_mask(site.index, bernoulli(1 - chance))

    def metrics(self) -> dict[str, float]:
        return {"drop_chance": sum(self.chances) / len(self.chances)}

    def record(self) -> dict[str, Any]:
        return {"drop_chances": [round(chance, 4) for chance in self.chances]}


def value_at(curve: Curve, progress: float) -> float:
    """A piecewise linear curve at a point; flat before its first and after its last."""
    if progress <= curve[0][0]:
        return curve[0][1]
    for (start, low), (end, high) in pairwise(curve):
        if progress <= end:
            return low + (progress - start) / (end - start) * (high - low)
    return curve[-1][1]
