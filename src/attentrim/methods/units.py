"""The units that gates open and close, numbered through in one vector, and what they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..control import Control
from ..errors import MethodError, unknown_name
from ..structures import STRUCTURES, Structure

LENGTH = 128
"""Tokens of the sequences that FLOPs are counted for."""
MEASURES = {"parameters": 0, "flops": 1}
"""Where a kind's `cost` has them."""


class Units:
    """One gate per unit (per key/value group where heads share keys) of some kinds, over all places that have any.

    Kinds whose units a history follows one by one come first.
    """

    def __init__(self, control: Control, kinds: Sequence[str]) -> None:
        self.kinds = sorted((_gateable(name) for name in kinds), key=lambda kind: not kind.traced)
        self.places: list[tuple[Structure, Any]] = [
            (kind, place) for kind in self.kinds for place in control.places[kind.places] if kind.gates(place.shape)
        ]
        self.sizes = [kind.gates(place.shape) for kind, place in self.places]
        """Gates by place."""
        self.count = sum(self.sizes)
        self.traced = sum(size for (kind, _), size in zip(self.places, self.sizes, strict=True) if kind.traced)
        """How many gates, from the first one on, a history follows one by one."""

    @property
    def sites(self) -> list[Any]:
        """The places that hold them."""
        return [place for _, place in self.places]

    def weights(self, measure: str | None, device: torch.device) -> Tensor | None:
        """What each unit weighs, a unit of the first kind being 1 on average; None: all weigh the same."""
        if measure is None:
            return None
        column = MEASURES[measure]
        costs = [kind.cost(place, LENGTH)[column] for kind, place in self.places]
        flat = torch.tensor(costs, dtype=torch.float32).repeat_interleave(torch.tensor(self.sizes))
        first = sum(size for (kind, _), size in zip(self.places, self.sizes, strict=True) if kind is self.kinds[0])
        return (flat / flat[:first].mean()).to(device)

    def locate(self, gate: int) -> tuple[int, int]:
        """(place, gate within the place)"""
        for (_, place), size in zip(self.places, self.sizes, strict=True):
            if gate < size:
                return place.index, gate
            gate -= size
        raise IndexError(gate)

    def apply(self, control: Control, gates: Tensor | None) -> None:
        """Put a vector [gates] or [batch, gates] onto the model; None: nothing is gated."""
        if gates is None:
            control.clear()
            return
        sizes = [sum(self._sizes_of(kind)) for kind in self.kinds]
        for kind, part in zip(self.kinds, gates.split(sizes, -1), strict=True):
            control.set_all(kind.name, part)

    def _sizes_of(self, kind: Structure) -> list[int]:
        return [size for (other, _), size in zip(self.places, self.sizes, strict=True) if other is kind]

    def removed(self, open_gates: Tensor) -> dict[str, dict[int, list[int]]]:
        """The units behind closed gates, by kind and place, as a plan lists them."""
        found: dict[str, dict[int, list[int]]] = {kind.name: {} for kind in self.kinds}
        closed = (open_gates == 0).cpu().split(self.sizes)
        for (kind, place), part in zip(self.places, closed, strict=True):
            gates = part.nonzero().flatten().tolist()
            found[kind.name][place.index] = [unit for gate in gates for unit in kind.group(place.shape, gate)]
        return found

    def record(self, open_gates: Tensor) -> dict[str, Any]:
        """For the history: the gates of kinds that are followed one by one, by place; of others how many are open."""
        parts = list(zip(self.places, open_gates.split(self.sizes), strict=True))
        found: dict[str, Any] = {}
        gates = [part.int().tolist() for (kind, _), part in parts if kind.traced]
        if gates:
            found["gates"] = gates
        for kind in self.kinds:
            if not kind.traced:
                counts = [part.sum() for (other, _), part in parts if other is kind]
                found[f"{kind.name}_open"] = [int(count) for count in torch.stack(counts).tolist()]
        return found

    def by_place(self, values: Tensor) -> list[list[float]]:
        """One number per gate, of kinds that a history follows one by one."""
        parts = zip(self.places, values.split(self.sizes), strict=True)
        return [[round(value, 4) for value in part.tolist()] for (kind, _), part in parts if kind.traced]


def _gateable(name: str) -> Structure:
    able = [kind for kind in STRUCTURES if STRUCTURES[kind].within]
    if name not in able:
        raise MethodError(unknown_name("kind of structure to prune", name, able))
    return STRUCTURES[name]
