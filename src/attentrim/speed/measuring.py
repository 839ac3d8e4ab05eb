"""Make latency tables: by timing narrower versions of a model side by side, or by counting their FLOPs.

Whole models are timed, not single blocks: a block costs what the model gains when all blocks like it are narrower,
with caches, kernels and compilers as they are when the model is used.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tqdm.auto import tqdm

from ..bench.timing import paired_ratios
from ..duplicate import duplicate, skeleton
from ..errors import AttentrimError
from ..flops import flops
from ..plan import Plan
from ..sites import unwrap
from ..structures import STRUCTURES, places_of
from ..surgery import operate
from .fingerprint import described_model, this_machine
from .layers import (
    Alike,
    Level,
    gates_in,
    groups_of,
    layer_kind,
    layers_of,
    place_kinds,
    removed_at,
    unit_kind,
)
from .table import FLOPS, TIME, GroupCosts, Table, never_falling
from .target import Target
from .timing import time_models

SECONDS = 45.0
"""For all repeats of a table together."""
QUICK = ("sdpa", "eager")
"""Backends in which a model is ready at once."""
ENOUGH_FLOPS = 1.5e10
"""Of each group of layers that are alike, as many are timed as make so many FLOPs; at least two, and at most six."""
SHARES = {True: (0, 1, 2, 4, 8, 16, 24, 32, 48, 64), False: (0, 4, 16, 32, 64)}
"""Widths that are timed, in 64ths of the full one: many, or few where a model takes long to be made ready."""
FEW_GATES = 16
"""A place with at most so many gates is timed with each number of them, where many widths are timed."""
CHECKED = (0.5, 0.25)
"""Shares of all units with which whole models are timed, to see how far a table can be trusted."""

Costs = Callable[[Sequence[Any]], list[list[float]]]
"""Models to what they cost: a figure for each model and repeat."""


def measured_table(model: Any, target: Target, *, progress: bool = True, seconds: float = SECONDS) -> Table:
    """Time narrower versions of `model`. Takes a minute or two; the model stays as it is."""
    model = unwrap(model)
    quick = target.backend in QUICK
    each = flops(model, target.batch, target.length) / max(1, len(layers_of(model)))
    few = min(6, max(2, math.ceil(ENOUGH_FLOPS / each))) if quick else 2
    with tqdm(desc=f"latency table, {target}", disable=None if progress else True, leave=False) as bar:

        def costs(models: Sequence[Any]) -> list[list[float]]:
            bar.reset(len(models) + 1)
            found = time_models(models, target, seconds, bar.update, source=model)
            bar.update()
            return found

        return _Maker(model, target, costs, few, quick).table(TIME, this_machine(target.device), CHECKED)


def flops_table(model: Any, target: Target) -> Table:
    """Count FLOPs in place of time. They are in proportion to widths, so two of each kind tell all."""
    model = unwrap(model)

    def costs(models: Sequence[Any]) -> list[list[float]]:
        return [[flops(shape, target.batch, target.length) / 1e6] for shape in models]

    return _Maker(skeleton(model), target, costs, 2, None).table(FLOPS, {}, ())


@dataclass
class _Maker:
    model: Any
    target: Target
    costs: Costs
    few: int
    """Layers of each group that are timed."""
    many: bool | None
    """Whether many widths are timed, or few; None: none but empty and full places."""

    def table(self, unit: str, machine: Mapping[str, Any], checked: Sequence[float]) -> Table:
        reduced = self._reduced()
        groups, short = groups_of(self.model), groups_of(reduced)
        wanted = [(number, level) for number, group in enumerate(short) for level in self._levels(reduced, group)]
        variants = [self._variant(reduced, short[number], level) for number, level in wanted]
        empty = _narrower(reduced, 0.0)
        singles = [self._single(empty, group) for group in short]
        narrow = [_narrower(self.model, share) for share in checked]
        times = self.costs([self.model, reduced, empty, *variants, *(model for model in singles if model), *narrow])
        whole, base, bare, rest = *times[:3], iter(times[3:])
        saved = {key: _difference(base, next(rest)) / len(short[key[0]]) for key in wanted}
        rests = [
            max(0.0, _difference(bare, next(rest)) / len(_others(group))) if single else 0.0
            for single, group in zip(singles, short, strict=True)
        ]
        fixed = statistics.median(bare) - sum(len(group) * rest for group, rest in zip(short, rests, strict=True))
        table = self._scaled(
            max(0.0, fixed),
            [self._group(group, number, saved, rests[number]) for number, group in enumerate(groups)],
            statistics.median(whole),
            unit,
            machine,
        )
        checks = tuple(
            (table.dense / table.cost(_narrow_plan(self.model, share)), statistics.median(paired_ratios(whole, times)))
            for share, times in zip(checked, rest, strict=True)
        )
        return replace(table, checks=checks)

    def _reduced(self) -> Any:
        """The model with a few layers of each group, where layers can go."""
        extra = [layer.index for group in groups_of(self.model) for layer in group.layers[self.few :]]
        return self._without(self.model, extra) or self.model

    def _single(self, model: Any, group: Alike) -> Any:
        """The model with one layer of a group, or none where there is but one; None where its layers cannot go."""
        return self._without(model, _others(group))

    def _without(self, model: Any, layers: Sequence[int]) -> Any:
        try:
            removed: dict[str, Any] = {layer_kind().name: layers}
            return _operated(model, Plan.of(model, **removed))
        except AttentrimError:
            return None

    def _levels(self, model: Any, group: Alike) -> list[Level]:
        """What is timed of the places of a group's layers, full ones left out."""
        gates, levels = gates_in(model), []
        for places, here in group.layers[0].places.items():
            full = gates[places][here[0]]
            levels += [(unit_kind(places).name, kept) for kept in self._widths(full) if kept < full]
            if full:
                levels += [(kind.name, 0) for kind in place_kinds(places)]
        return levels

    def _widths(self, full: int) -> list[int]:
        if self.many is None:
            return [0]
        if self.many and full <= FEW_GATES:
            return list(range(full))
        return sorted({share * full // 64 for share in SHARES[self.many]})

    def _variant(self, model: Any, group: Alike, level: Level) -> Any:
        """All layers of a group with their places at a level."""
        found, removed = places_of(model), dict[int, Any]()
        for layer in group.layers:
            for places, here in layer.places.items():
                if any(level[0] == kind.name for kind in (unit_kind(places), *place_kinds(places))):
                    for index in here:
                        removed |= removed_at(level, places, index, found[places][index].shape)[1]
        units: dict[str, Any] = {level[0]: removed if STRUCTURES[level[0]].within else list(removed)}
        return _operated(model, Plan.of(model, **units))

    def _group(self, group: Alike, number: int, saved: Mapping[tuple[int, Level], float], rest: float) -> GroupCosts:
        """Costs from what narrower places saved: a full place costs what an empty one saves."""
        gates, levels = gates_in(self.model), dict[str, dict[int, float]]()
        for places, here in group.layers[0].places.items():
            kind, full = unit_kind(places), gates[places][here[0]]
            counts = sorted(level[1] for key, level in saved if key == number and level[0] == kind.name)
            most = saved[number, (kind.name, 0)] if full else 0.0
            costs = [most - saved[number, (kind.name, kept)] for kept in counts] + [most]
            # the first one is 0 by definition
            rising = [max(cost, 0.0) for cost in never_falling(costs, [1e6, *[1.0] * (len(costs) - 1)])]
            levels[kind.name] = {kept: cost / len(here) for kept, cost in zip([*counts, full], rising, strict=True)}
            for other in place_kinds(places) if full else []:
                levels[other.name] = {0: max(0.0, most - saved[number, (other.name, 0)]) / len(here)}
        return GroupCosts(group.layers, rest, levels)

    def _scaled(
        self, fixed: float, groups: Sequence[GroupCosts], whole: float, unit: str, machine: Mapping[str, Any]
    ) -> Table:
        """Costs whose sum over all layers is that of the whole model: what places cost is scaled, the rest stays."""
        table = Table(unit, fixed, tuple(groups), self.target, described_model(self.model), machine)
        rest = fixed + sum(group.rest * len(group.layers) for group in groups)
        factor = (whole - rest) / (table.dense - rest) if table.dense > rest else 1.0
        scaled = tuple(
            replace(group, levels={kind: _times(factor, found) for kind, found in group.levels.items()})
            for group in groups
        )
        return replace(table, groups=scaled)


def _others(group: Alike) -> list[int]:
    """The layers of a group but the first; of one layer, that one."""
    return [layer.index for layer in group.layers[1:] or group.layers]


def _times(factor: float, costs: Mapping[int, float]) -> dict[int, float]:
    return {kept: factor * cost for kept, cost in costs.items()}


def _operated(model: Any, plan: Plan) -> Any:
    """A copy that shares all weights that the plan leaves alone."""
    with torch.inference_mode(False):
        twin = duplicate(model, lambda tensor: tensor)
        operate(twin, plan)
    return twin


def _narrower(model: Any, share: float) -> Any:
    return _operated(model, _narrow_plan(model, share))


def _narrow_plan(model: Any, share: float) -> Plan:
    """Every place keeps this share of its gates."""
    removed: dict[str, Any] = {}
    for places, found in places_of(model).items():
        for place in found if places in gates_in(model) else ():
            kind = unit_kind(places)
            kept = round(share * kind.gates(place.shape))
            removed.setdefault(kind.name, {}).update(
                removed_at((kind.name, kept), places, place.index, place.shape)[1]
            )
    return Plan.of(model, **removed)


def _difference(whole: Sequence[float], narrower: Sequence[float]) -> float:
    """The median over repeats of what is saved."""
    return statistics.median(before - after for before, after in zip(whole, narrower, strict=True))
