"""A latency table: what each block of a model takes at each width, on one machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import write_text
from ..bench.settings import BACKENDS, DEVICES, DTYPES
from ..errors import AttentrimError
from ..guarded import read_json
from ..plan import Plan
from .layers import LayerPlaces, Level, holders, layer_kind, level_of, unit_kind
from .target import Target

VERSION = 1
TIME, FLOPS = "ms", "MFLOPs"


@dataclass(frozen=True)
class GroupCosts:
    """What layers that are alike cost."""

    layers: tuple[LayerPlaces, ...]
    rest: float
    """Of a layer in which all places are empty: norms, sums, biases."""
    levels: Mapping[str, Mapping[int, float]]
    """By kind of structure and gates kept: what a place adds to that. Between two widths, in proportion."""

    def of_place(self, level: Level) -> float:
        kept = sorted(self.levels[level[0]])
        return float(np.interp(level[1], kept, [self.levels[level[0]][count] for count in kept]))


@dataclass(frozen=True)
class Table:
    """The cost of each block of a model. `fixed` is the cost of what is outside the layers (embeddings, task head)."""

    unit: str
    """"ms", or "MFLOPs" if nothing was measured."""
    fixed: float
    groups: tuple[GroupCosts, ...]
    target: Target
    model: Mapping[str, Any]
    """The model that the table was made for: its type and a fingerprint of its shapes."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[tuple[float, float], ...] = ()
    """Speed-ups of a few narrower models: (according to this table, measured as a whole model)."""

    @property
    def layers(self) -> dict[int, tuple[LayerPlaces, GroupCosts]]:
        return {layer.index: (layer, group) for group in self.groups for layer in group.layers}

    def layer_parts(self, plan: Plan, layer: int) -> dict[str, float]:
        """The cost of a layer that is kept, by type of block, and `rest`."""
        places, group = self.layers[layer]
        parts = {
            name: sum(group.of_place(level_of(plan, name, index)) for index in here)
            for name, here in places.places.items()
        }
        return {**parts, "rest": group.rest}

    def cost(self, plan: Plan) -> float:
        """The cost of the whole model after a plan."""
        gone = plan.removed_of(layer_kind().name)
        return self.fixed + sum(
            sum(self.layer_parts(plan, index).values()) for index in self.layers if index not in gone
        )

    @property
    def dense(self) -> float:
        """The cost of the full model."""
        return self.fixed + sum(self.layer_cost(layer, group) for layer, group in self.layers.values())

    def layer_cost(self, layer: LayerPlaces, group: GroupCosts) -> float:
        full = (group.of_place((unit_kind(name).name, 1 << 30)) * len(here) for name, here in layer.places.items())
        return group.rest + sum(full)

    def corrected(self, asked: float) -> float:
        """The speed-up to request from this table for a speed-up of the whole model, according to `checks`."""
        if not self.checks:
            return asked
        points = sorted([(1.0, 1.0), *((whole, table) for table, whole in self.checks)])
        whole, table = zip(*points, strict=True)
        return asked * float(np.interp(asked, whole, [t / w for t, w in zip(table, whole, strict=True)]))

    # On disk

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "unit": self.unit,
            "model": dict(self.model),
            "target": self.target.as_dict(),
            "machine": dict(self.machine),
            "fixed": self.fixed,
            "groups": [
                {
                    "layers": [
                        [layer.index, {name: list(here) for name, here in layer.places.items()}] for layer in g.layers
                    ],
                    "rest": g.rest,
                    "levels": {
                        kind: {str(kept): cost for kept, cost in found.items()} for kind, found in g.levels.items()
                    },
                }
                for g in self.groups
            ],
            "checks": [list(pair) for pair in self.checks],
        }

    def save(self, path: str | Path) -> None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(self.to_dict(), indent=1) + "\n")  # other processes may keep the same table

    @classmethod
    def load(cls, path: str | Path) -> Table:
        data = read_json(path, "the latency table", follow=True)
        if not isinstance(data, dict) or "groups" not in data:
            raise AttentrimError(f"{path} is not a latency table.")
        if data.get("version") != VERSION:
            raise AttentrimError(
                f"{path} is a latency table of version {data.get('version')!r}; this attentrim reads {VERSION}."
            )
        try:
            return cls._read(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise AttentrimError(f"The latency table {path} is damaged: {type(error).__name__}: {error}") from error

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Table:
        groups = tuple(
            GroupCosts(
                layers=tuple(
                    LayerPlaces(int(index), {name: tuple(map(int, here)) for name, here in places.items()})
                    for index, places in group["layers"]
                ),
                rest=_cost(group["rest"]),
                levels={
                    kind: {int(kept): _cost(cost) for kept, cost in found.items()}
                    for kind, found in group["levels"].items()
                },
            )
            for group in data["groups"]
        )
        _check_groups(groups)
        checks = tuple((_cost(table), _cost(whole)) for table, whole in data["checks"])
        if not all(table and whole for table, whole in checks):
            raise ValueError("a speed-up of 0")
        if data["unit"] not in (TIME, FLOPS):
            raise ValueError(f"costs in {data['unit']!r}")
        return cls(
            unit=data["unit"],
            fixed=_cost(data["fixed"]),
            groups=groups,
            target=_target(data["target"]),
            model=dict(data["model"]),
            machine=dict(data["machine"]),
            checks=checks,
        )


def _check_groups(groups: Sequence[GroupCosts]) -> None:
    """Raise unless there are costs of all that layers hold."""
    for group in groups:
        for places in {name for layer in group.layers for name in layer.places}:
            if places not in holders():
                raise ValueError(f"layers with {places!r}")
            if not group.levels.get(unit_kind(places).name):
                raise ValueError(f"no costs of {unit_kind(places).name}")


def _cost(value: Any) -> float:
    cost = float(value)
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(f"a cost of {cost}")
    return cost


def _target(values: Mapping[str, Any]) -> Target:
    target = Target(**values)
    for name, known in (("dtype", DTYPES), ("backend", BACKENDS), ("device", DEVICES)):
        if getattr(target, name) not in known:
            raise ValueError(f"{name} {getattr(target, name)!r}")
    for name in ("batch", "length"):
        if not isinstance(getattr(target, name), int) or getattr(target, name) < 1:
            raise ValueError(f"{name} {getattr(target, name)!r}")
    return target


def never_falling(costs: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """The nearest costs that do not fall from one width to the next (least squares, by pooling neighbours).

    A wider block is never faster but by noise; and where it is, a search takes the wider one all the same.
    """
    pools: list[tuple[float, float, int]] = []
    for cost, weight in zip(costs, weights or [1.0] * len(costs), strict=True):
        mean, total, count = cost, weight, 1
        while pools and pools[-1][0] >= mean:
            before, mass, size = pools.pop()
            mean = (before * mass + mean * total) / (mass + total)
            total, count = total + mass, count + size
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
