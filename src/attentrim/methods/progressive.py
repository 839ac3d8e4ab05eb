"""Sites made uniform one after the other while a model trains: which ones, how many, and when. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import MethodError
from .base import Method

RAMP_SHARE = 0.5
"""The share of the pruning phase by which all chosen sites are uniform."""

Metric = Callable[[Sequence[int]], float]
"""The metric, higher being better, with these sites uniform."""


@dataclass(frozen=True)
class SitePruning:
    """The choice of sites and the schedule of one method. Without `count` and `max_drop`, half of the sites go."""

    count: int | None = None
    max_drop: float | None = None
    greedy: bool = False
    """Whether each site is chosen by the metric; if not, sites go in the order that they are given in."""
    ramp_share: float = RAMP_SHARE

    @property
    def judged_by_metric(self) -> bool:
        return self.greedy or self.max_drop is not None

    def choose(self, ranked: Sequence[int], metric: Metric | None = None) -> list[int]:
        """The sites to make uniform, first to go first. Of sites that cost the same, the first in `ranked` goes."""
        limit = self._limit(len(ranked))
        if not self.judged_by_metric:
            return list(ranked[:limit])
        assert metric is not None
        lowest = -math.inf if self.max_drop is None else metric([]) - self.max_drop
        chosen: list[int] = []
        while len(chosen) < limit:
            left = [site for site in ranked if site not in chosen]
            candidates = left if self.greedy else left[:1]
            scores = {site: metric([*chosen, site]) for site in candidates}
            best = max(scores, key=lambda site: scores[site])
            if scores[best] < lowest:
                break
            chosen.append(best)
        return chosen

    def uniform_at(self, chosen: Sequence[int], progress: float) -> list[int]:
        """The sites that are uniform at a point of the pruning phase, from 0 to 1: one more at a time."""
        share = min(progress / self.ramp_share, 1.0) if self.ramp_share else 1.0
        return list(chosen[: math.ceil(len(chosen) * share)])

    def _limit(self, sites: int) -> int:
        """How many sites to make uniform at most."""
        if self.count is None:
            return sites if self.max_drop is not None else max(1, sites // 2)
        if self.count > sites:
            raise MethodError(f"{self.count} sites should be made uniform; this model has {sites} sites with heads.")
        return self.count


@dataclass(kw_only=True)
class ProgressiveMethod(Method):
    """Base of the methods that make sites uniform while the model trains."""

    @property
    def pruning(self) -> SitePruning | None:
        """How sites are chosen, and when they turn uniform; None where all keep their attention."""
        raise NotImplementedError

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("uniform",) if self.pruning is not None else ()

    @property
    def first_share(self) -> float:
        """The share of the steps before the first site turns uniform; 1 where sites are pruned when training ends."""
        raise NotImplementedError


def amount_in_words(pruning: SitePruning) -> str:
    """How many sites are made uniform, for a sentence."""
    if pruning.max_drop is not None:
        return f"as many sites as cost at most {pruning.max_drop:g} of the metric on held-out training data"
    return "half of the sites" if pruning.count is None else f"{pruning.count} sites"


ORDER_IN_WORDS = {
    "greedy": "those that cost the metric least, one after the other, on held-out training data",
    "top": "those nearest to the output",
}
"""Which sites go first, for a sentence."""
