"""Plans for tests: random valid ones, and the corner cases that every architecture must survive.

A new kind of structure is one line in `REMOVALS`: the equivalence suite then covers it, alone and mixed with others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from attentrim import Plan, find_sites
from attentrim.errors import AttentrimError
from attentrim.structures import STRUCTURES, places_of
from attentrim.structures.layers import find_layers
from attentrim.structures.neurons import find_blocks


def heads_of(site: Any, groups: Iterable[int]) -> list[int]:
    return [head for group in groups for head in site.group(group)]


def _heads(site: Any) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, site.groups - 1)).map(lambda groups: heads_of(site, groups))


def _neurons(block: Any) -> st.SearchStrategy[list[int]]:
    """None, a few, most, or all."""
    counts = st.sampled_from([0, 1, block.neurons // 2, block.neurons])
    return counts.flatmap(lambda count: st.permutations(range(block.neurons)).map(lambda order: sorted(order[:count])))


def removable_layers(model: Any) -> list[Any]:
    """Layers that the architecture lets go of; where these are all of a stack, its last one stays."""
    layers = find_layers(model)
    found = [layer for layer in layers if _can_go(model, layer)]
    last = {layer.stack: layer.index for layer in layers}
    stay = {last[stack] for stack in last if not any(layer.stack == stack for layer in layers if layer not in found)}
    return [layer for layer in found if layer.index not in stay]


def _can_go(model: Any, layer: Any) -> bool:
    try:
        Plan.of(model, layers=[layer.index])
    except AttentrimError:
        return False
    return True


REMOVALS: dict[str, Callable[[Any], st.SearchStrategy[Any]]] = {
    "heads": _heads,
    "uniform": lambda site: st.booleans(),
    "neurons": _neurons,
    "layers": lambda layer: st.booleans(),
}
"""By kind: what may be removed from a place; for kinds whose unit is the place, whether it is."""


def random_plans(model: Any, kinds: Iterable[str] = tuple(REMOVALS)) -> st.SearchStrategy[Plan]:
    """Any mixture of these kinds of removal."""
    layers = removable_layers(model)

    @st.composite
    def draw_plan(draw: Callable[[Any], Any]) -> Plan:
        gone = [layer.index for layer in layers if "layers" in kinds and draw(REMOVALS["layers"](layer))]
        within = tuple(f"{find_layers(model)[index].name}." for index in gone)
        removed: dict[str, Any] = {"layers": gone}
        for kind in kinds:
            structure = STRUCTURES[kind]
            if structure.renumbers:
                continue
            places = [
                place
                for place in places_of(model)[structure.places]
                if structure.units(place.shape)
                and not f"{place.name}.".startswith(within or ("-",))
                and getattr(place, "heads", 1)
            ]
            drawn = {place.index: draw(REMOVALS[kind](place)) for place in places}
            removed[kind] = drawn if structure.within else [index for index, goes in drawn.items() if goes]
        return Plan.of(model, **removed)

    return draw_plan()


def corner_plans(model: Any) -> dict[str, Plan]:
    """Named plans that between them use every operation on every place."""
    sites, blocks = find_sites(model), find_blocks(model)
    everything = {site.index: range(site.heads) for site in sites}
    first = {site.index: heads_of(site, [0]) for site in sites}
    last = len(sites) - 1
    half = {block.index: range(0, block.neurons, 2) for block in blocks}
    layers = [layer.index for layer in removable_layers(model)]
    inside = {f"{find_layers(model)[index].name}." for index in layers}
    kept = [site.index for site in sites if not site.name.startswith(tuple(inside) or ("-",))]
    return {
        "nothing": Plan.of(model),
        "one group of every site": Plan.of(model, heads=first),
        "every site uniform": Plan.of(model, uniform=range(len(sites))),
        "every site uniform and thinned": Plan.of(model, heads=first, uniform=range(len(sites))),
        "first site headless": Plan.of(model, heads={0: everything[0]}),
        "every site headless": Plan.of(model, heads=everything),
        "first uniform, last thinned": Plan.of(model, heads={last: first[last]}, uniform=[0]),
        "first headless, last uniform": Plan.of(model, heads={0: everything[0]}, uniform=[last]),
        "half of the neurons": Plan.of(model, neurons=half),
        "no neurons in the first block": Plan.of(model, neurons={**half, 0: range(blocks[0].neurons)}),
        "all layers that can go": Plan.of(model, layers=layers),
        "some of everything": Plan.of(
            model,
            layers=layers,
            heads={site: first[site] for site in kept},
            uniform=kept[-1:],
            neurons={
                block: units
                for block, units in half.items()
                if not f"{blocks[block].name}.".startswith(tuple(inside) or ("-",))
            },
        ),
    }
