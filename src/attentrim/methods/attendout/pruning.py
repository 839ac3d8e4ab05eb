"""Which sites to make uniform for good, how many, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...errors import MethodError

FULL_AT = 0.5
"""The share of the fine-tuning by which all chosen sites are uniform."""

Metric = Callable[[Sequence[int]], float]
"""The metric, higher being better, with these sites uniform."""


def choose(
    rates: Mapping[int, float],
    *,
    order: str,
    count: int | None = None,
    threshold: float | None = None,
    max_drop: float | None = None,
    metric: Metric | None = None,
) -> list[int]:
    """The sites to make uniform, first to go first. `rates`: how often the generator drops each site's attention."""
    if threshold is not None:
        return [site for site in _by_rate(rates) if rates[site] >= threshold]
    limit = len(rates) if count is None else count
    if limit > len(rates):
        raise MethodError(f"prune_count is {count}; this model has {len(rates)} sites with heads.")
    if order != "greedy" and max_drop is None:
        return (_by_rate(rates) if order == "generator" else sorted(rates, reverse=True))[:limit]
    assert metric is not None
    least = -math.inf if max_drop is None else metric([]) - max_drop
    ranked = _by_rate(rates) if order == "generator" else sorted(rates, reverse=True)
    chosen: list[int] = []
    while len(chosen) < limit:
        left = [site for site in ranked if site not in chosen]
        tried = {site: metric([*chosen, site]) for site in (left if order == "greedy" else left[:1])}
        best = max(tried, key=lambda site: tried[site])
        if tried[best] < least:
            break
        chosen.append(best)
    return chosen


def _by_rate(rates: Mapping[int, float]) -> list[int]:
    """Most dropped first; of equals the upper one."""
    return sorted(rates, key=lambda site: (-rates[site], -site))


def uniform_at(chosen: Sequence[int], progress: float) -> list[int]:
    """The sites that are uniform at a point of the fine-tuning, from 0 to 1: one more at a time."""
    return list(chosen[: math.ceil(len(chosen) * min(progress / FULL_AT, 1.0))])
