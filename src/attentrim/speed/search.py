"""Which blocks to narrow, and how far: the least loss within a budget, exact by dynamic programming.

Each layer is left in one of many ways, each with what it costs and the loss that it brings: a multiple-choice
knapsack. Losses and costs add up here, and do not quite in a model, so whoever searches measures the result and
searches again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from .layers import LayerPlaces, Level
from .table import GroupCosts

STEPS = 8000
"""The budget is divided into so many steps; costs are rounded up to whole ones, so that it is never exceeded."""
GONE: tuple[Level, ...] | None = None
"""In place of the levels of a layer's places: the layer is removed."""


@dataclass(frozen=True)
class Ways:
    """The ways to leave one layer, none of them both cheaper and better than another."""

    costs: np.ndarray
    losses: np.ndarray
    levels: tuple[tuple[Level, ...] | None, ...]
    """By way: the level of each place, in the order of `places_in`; None: the layer is removed."""


Losses = Mapping[Level, float]
"""The loss that each level of a place brings."""


def places_in(layer: LayerPlaces) -> list[tuple[str, int]]:
    """The places of a layer, (plural name, number)."""
    return [(name, index) for name, here in layer.places.items() for index in here]


def ways_of(layer: LayerPlaces, group: GroupCosts, losses: Sequence[Losses], loss_if_gone: float | None) -> Ways:
    """All combinations of levels of a layer's places, and the layer gone where it may go."""
    parts = [sorted(place) for place in losses]
    times = [[group.of_place(level) for level in part] for part in parts]
    costs = group.rest + _sums(times)
    totals = _sums([[place[level] for level in part] for place, part in zip(losses, parts, strict=True)])
    picked: list[tuple[Level, ...] | None] = list(product(*parts))
    if loss_if_gone is not None:
        costs, totals = np.append(costs, 0.0), np.append(totals, loss_if_gone)
        picked.append(GONE)
    best = _undominated(costs, totals)
    return Ways(costs[best], totals[best], tuple(picked[index] for index in best))


def _sums(parts: Sequence[Sequence[float]]) -> np.ndarray:
    """The sums of all combinations, in the order of itertools.product."""
    total = np.zeros(1)
    for part in parts:
        total = np.add.outer(total, np.asarray(part)).ravel()
    return total


def _undominated(costs: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Those for which no cheaper one is as good."""
    order = np.lexsort((losses, costs))
    sorted_losses = losses[order]
    before = np.concatenate([[np.inf], np.minimum.accumulate(sorted_losses)[:-1]])
    found: np.ndarray = order[sorted_losses < before]
    return found


def least_loss(ways: Sequence[Ways], budget: float, steps: int = STEPS) -> list[int] | None:
    """The way to choose for each layer, for the least sum of losses within a budget; None where none fits."""
    if budget < 0:
        return None
    unit = max(budget / steps, 1e-300)  # of a budget of nothing, no step is left for anything that costs
    best = np.zeros(steps + 1)  # by steps spent at most
    picks = []
    for layer in ways:
        sizes = np.minimum(np.ceil(layer.costs / unit - 1e-9), steps + 1).astype(np.int64)
        totals = np.full((steps + 1,), np.inf)
        pick = np.full((steps + 1,), -1, dtype=np.int32)
        for way, (size, loss) in enumerate(zip(sizes, layer.losses, strict=True)):
            if size > steps:
                continue
            reached = best[: steps + 1 - size] + loss
            better = reached < totals[size:]
            totals[size:][better] = reached[better]
            pick[size:][better] = way
        best = totals
        picks.append((pick, sizes))
    if not np.isfinite(best[steps]):
        return None
    chosen, left = [], steps
    for pick, sizes in reversed(picks):
        chosen.append(int(pick[left]))
        left -= int(sizes[chosen[-1]])
    return chosen[::-1]


def least_cost(ways: Sequence[Ways]) -> float:
    """What is spent if all layers are left in their cheapest way."""
    return float(sum(layer.costs.min() for layer in ways))
