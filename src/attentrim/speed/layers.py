"""The layers of a model as a search sees them: which places each holds, and which layers are alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..plan import Plan
from ..sites import layer_of, unwrap
from ..structures import STRUCTURES, Structure, kinds, places_of

Level = tuple[str, int]
"""How a place is left: (kind of structure, gates kept); 0 where the place itself is the unit and is removed."""


@dataclass(frozen=True)
class LayerPlaces:
    """One layer, by its number, and the places in it, by their plural name."""

    index: int
    places: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Alike:
    """Layers that cost the same: they differ in their weights alone."""

    layers: tuple[LayerPlaces, ...]

    def __len__(self) -> int:
        return len(self.layers)


def unit_kind(places: str) -> Structure:
    """The kind whose units are numbered within these places."""
    return next(kind for kind in kinds() if kind.places == places and kind.within)


def place_kinds(places: str) -> list[Structure]:
    """The kinds that change a place as a whole and leave it where it is."""
    return [kind for kind in kinds() if kind.places == places and not kind.within and not kind.renumbers]


def layer_kind() -> Structure:
    """The kind that removes whole layers."""
    return next(kind for kind in kinds() if kind.renumbers)


def holders() -> list[str]:
    """The places that hold units, by their plural name."""
    return list(dict.fromkeys(kind.places for kind in kinds() if kind.within))


def layers_of(model: Any) -> list[LayerPlaces]:
    """All layers in order."""
    found = places_of(unwrap(model))
    layers = found[layer_kind().places]
    inside: dict[str, dict[str, list[int]]] = {layer.path: {} for layer in layers}
    for places in holders():
        for place in found[places]:
            path = layer_of(place.path)
            if path in inside:
                inside[path].setdefault(places, []).append(place.index)
    return [
        LayerPlaces(layer.index, {places: tuple(here) for places, here in inside[layer.path].items()})
        for layer in layers
    ]


def groups_of(model: Any) -> list[Alike]:
    """The layers in groups of those that are alike, in the order of their first ones."""
    found = places_of(unwrap(model))
    stacks = {layer.index: layer.stack for layer in found[layer_kind().places]}
    groups: dict[Any, list[LayerPlaces]] = {}
    for layer in layers_of(model):
        cost = tuple(
            (
                places,
                unit_kind(places).gates(place.shape),
                getattr(place, "uniform", None),
                getattr(place, "window", 0),
            )
            for places, here in layer.places.items()
            for place in (found[places][index] for index in here)
        )
        groups.setdefault((stacks[layer.index], cost), []).append(layer)
    return [Alike(tuple(layers)) for layers in groups.values()]


def gates_in(model: Any) -> dict[str, list[int]]:
    """By plural name of places, how many gates each has."""
    found = places_of(unwrap(model))
    return {places: [unit_kind(places).gates(place.shape) for place in found[places]] for places in holders()}


def level_of(plan: Plan, places: str, index: int) -> Level:
    """How a plan leaves a place of a layer that stays. What has no units left is empty, whatever else it was to be."""
    kind = unit_kind(places)
    shape, gone = plan.shapes[places][index], set(plan.removed_of(kind.name).get(index, ()))
    count = kind.gates(shape)
    kept = count - sum(gone.issuperset(kind.group(shape, gate)) for gate in range(count)) if gone else count
    for other in place_kinds(places):
        if kept and index in plan.removed_of(other.name):
            return other.name, 0
    return kind.name, kept


def removed_at(level: Level, places: str, index: int, shape: Any) -> tuple[str, dict[int, Any]]:
    """What a plan lists to leave a place so, its first gates staying: (kind, units by place)."""
    kind, kept = STRUCTURES[level[0]], level[1]
    if not kind.within:
        return kind.name, {index: ()}
    gates = range(kept, kind.gates(shape))
    return kind.name, {index: tuple(unit for gate in gates for unit in kind.group(shape, gate))}
