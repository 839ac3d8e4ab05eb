"""From scores and a latency table to a selection: the search of `speed`, in terms of gates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import AttentrimError, MethodError
from ...sites import unwrap
from ...speed.layers import Level, layer_kind, place_kinds, unit_kind
from ...speed.search import GONE, Losses, Ways, least_cost, least_loss, places_in, ways_of
from ...speed.table import Table
from ..units import Units

FEW_GATES = 64
"""A place with at most so many gates may keep any number of them; others keep multiples of a step."""
LEAST = 1e-6
"""Added to all scores, as a share of their mean, so that units of no importance are not removed needlessly."""


@dataclass(frozen=True)
class Choice:
    """What stays."""

    open: Tensor
    """The gates, 1 or 0, on the CPU."""
    layers: frozenset[int]
    """Removed ones."""
    whole: Mapping[str, frozenset[int]]
    """By kind that changes a place as a whole: where it does."""
    cost: float
    """By the table."""
    loss: float


@dataclass(frozen=True)
class Scores:
    """The importance of each unit to the loss."""

    gates: Tensor
    places: Mapping[tuple[str, int], float]
    """The importance of whole places, by kind and place."""


class Chooser:
    """Knows a model's layers, what may go, and what it costs."""

    def __init__(self, model: Any, units: Units, table: Table, prune: tuple[str, ...], step: int) -> None:
        self.model, self.units, self.table, self.step = unwrap(model), units, table, step
        self.layers = [table.layers[index] for index in sorted(table.layers)]
        self.may_go = layer_kind().name in prune
        self.prune = prune
        starts = np.concatenate([[0], np.cumsum(units.sizes)]).tolist()
        self.slices = {
            (kind.places, place.index): slice(start, stop)
            for (kind, place), start, stop in zip(units.places, starts, starts[1:], strict=False)
        }
        self.kind_at = {(kind.places, place.index): kind.name for kind, place in units.places}
        self.stacks = self._stacks()
        self.unit_costs = self._unit_costs()

    def _stacks(self) -> dict[int, str]:
        places = layer_kind().find(self.model)
        return {place.index: place.stack for place in places}

    def choose(
        self, scores: Scores, open_gates: Tensor, gone: frozenset[int], budget: float, steps: int = 2000
    ) -> Choice | None:
        """The least loss within a budget. Closed gates stay closed, and removed layers gone; None: nothing fits."""
        values, still_open = self._felt(scores.gates), open_gates.bool().cpu().numpy()
        ways = self._ways(scores, values, still_open, gone)
        chosen = least_loss(ways, budget - self.table.fixed, steps)
        if chosen is None:
            return None
        gates, removed, whole = still_open.copy(), set(gone), dict[str, set[int]]()
        for (layer, _), way, pick in zip(self.layers, ways, chosen, strict=True):
            levels = way.levels[pick]
            if levels is None:
                removed.add(layer.index)
                continue
            for place, level in zip(places_in(layer), levels, strict=True):
                if place in self.kind_at and level[0] == self.kind_at[place]:
                    self._keep_best(gates, values, self.slices[place], level[1])
                elif place in self.kind_at:
                    whole.setdefault(level[0], set()).add(place[1])
        cost = self.table.fixed + sum(float(way.costs[pick]) for way, pick in zip(ways, chosen, strict=True))
        loss = sum(float(way.losses[pick]) for way, pick in zip(ways, chosen, strict=True))
        return Choice(
            torch.from_numpy(gates).float(),
            frozenset(removed),
            {kind: frozenset(found) for kind, found in whole.items()},
            cost,
            loss,
        )

    def _felt(self, scores: Tensor) -> np.ndarray:
        """Scores above 0: each unit counts a little in proportion to its cost."""
        values: np.ndarray = scores.double().cpu().numpy()
        return values + LEAST * (values.mean() or 1.0) * self.unit_costs

    def _unit_costs(self) -> np.ndarray:
        """What each gate's units cost, 1 on average."""
        found = np.ones(self.units.count)
        for layer, group in self.layers:
            for place in places_in(layer):
                if place in self.slices:
                    here = self.slices[place]
                    count = here.stop - here.start
                    found[here] = group.of_place((self.kind_at[place], count)) / count
        return found / (found.mean() or 1.0)

    def check_reach(self, asked: float) -> None:
        """Raise if the model cannot be as fast as asked, whatever is removed."""
        none = Scores(torch.zeros(self.units.count), defaultdict(float))
        most = self.most(none, torch.ones(self.units.count), frozenset())
        by_table = self.table.corrected(asked)
        if by_table >= most:
            raise MethodError(
                f"This model cannot be made {asked:g} times as fast: without all {' and '.join(self.prune)} that can "
                f"be removed, it is {most * asked / by_table:.2f} times as fast at {self.table.target}."
            )

    def most(self, scores: Scores, open_gates: Tensor, gone: frozenset[int]) -> float:
        """The highest speed-up that can be reached, by the table."""
        ways = self._ways(scores, scores.gates.double().cpu().numpy(), open_gates.bool().cpu().numpy(), gone)
        least = self.table.fixed + least_cost(ways)
        return self.table.dense / least if least else math.inf

    @staticmethod
    def _keep_best(gates: np.ndarray, values: np.ndarray, here: slice, kept: int) -> None:
        """Close the lowest open gates of a place until `kept` are open."""
        numbers = np.flatnonzero(gates[here]) + here.start
        order = numbers[np.argsort(values[numbers], kind="stable")]
        gates[order[: len(order) - kept]] = False

    def _ways(self, scores: Scores, values: np.ndarray, still_open: np.ndarray, gone: frozenset[int]) -> list[Ways]:
        """The ways to leave each layer."""
        losses_if_gone = self._losses_if_gone(scores, values, still_open, gone)
        found = []
        for layer, group in self.layers:
            if layer.index in gone:
                found.append(Ways(np.zeros(1), np.zeros(1), (GONE,)))
                continue
            losses = [self._losses(scores, values, still_open, place) for place in places_in(layer)]
            found.append(ways_of(layer, group, losses, losses_if_gone.get(layer.index)))
        return found

    def _losses_if_gone(
        self, scores: Scores, values: np.ndarray, still_open: np.ndarray, gone: frozenset[int]
    ) -> dict[int, float]:
        """The importance of each removable layer: that of all units in it, or of skipping it, if that is more.

        The most important layer of each stack stays.
        """
        if not self.may_go:
            return {}
        found: dict[int, float] = {}
        for layer, _ in self.layers:
            if layer.index in gone or not self._can_go(layer.index):
                continue
            inside = [self.slices[place] for place in places_in(layer) if place in self.slices]
            units = sum(float(values[here][still_open[here]].sum()) for here in inside)
            found[layer.index] = max(units, scores.places[layer_kind().name, layer.index])
        for stack in set(self.stacks.values()):
            able = [index for index in found if self.stacks[index] == stack]
            alone = all(index in gone or index in found for index, other in self.stacks.items() if other == stack)
            if able and alone:
                del found[max(able, key=lambda index: found[index])]
        return found

    def _can_go(self, layer: int) -> bool:
        try:
            layer_kind().refuse(self.model, {layer: ()})
        except AttentrimError:
            return False
        return True

    def _losses(self, scores: Scores, values: np.ndarray, still_open: np.ndarray, place: tuple[str, int]) -> Losses:
        """By level of a place: the sum of the scores of the gates that close for it."""
        if place not in self.slices:
            return {self._as_it_is(place): 0.0}
        here, kind = self.slices[place], self.kind_at[place]
        rising = np.sort(values[here][still_open[here]])
        sums = np.concatenate([[0.0], np.cumsum(rising)])
        count = len(rising)
        step = 1 if here.stop - here.start <= FEW_GATES else self.step
        kept = sorted({*range(0, count + 1, step), count})
        losses: dict[Level, float] = {(kind, number): float(sums[count - number]) for number in kept}
        for other in place_kinds(place[0]):
            if other.name in self.prune and count:
                losses[other.name, 0] = scores.places[other.name, place[1]]
        return losses

    def _as_it_is(self, place: tuple[str, int]) -> Level:
        """The level of a place none of whose units may go."""
        kind = unit_kind(place[0])
        return kind.name, kind.gates(kind.find(self.model)[place[1]].shape)

    def removed(self, choice: Choice) -> dict[str, Any]:
        """What a plan lists. What goes with a layer is not named on its own."""
        inside = {place for layer, _ in self.layers if layer.index in choice.layers for place in places_in(layer)}
        found: dict[str, Any] = {}
        for kind, by_place in self.units.removed(choice.open).items():
            places = next(other.places for other in self.units.kinds if other.name == kind)
            found[kind] = {index: units for index, units in by_place.items() if (places, index) not in inside}
        return {
            **found,
            **{kind: sorted(where) for kind, where in choice.whole.items()},
            layer_kind().name: sorted(choice.layers),
        }
