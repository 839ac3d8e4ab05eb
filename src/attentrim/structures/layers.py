"""Whole layers: the hidden states pass a removed layer by, and the layers behind it move up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

from torch import nn

from ..architectures import Layout
from ..errors import PlanError, UnsupportedModelError
from ..shapes import Shape
from ..sites import find_sites, layer_of, layout_of, path_below_base, stack_of, unwrap
from .base import STRUCTURES, Left, Removed, Shapes, Structure
from .configs import all_configs, config_of, configs_of
from .live import LayerSkip

PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Entries of configs that say something about each layer."""


@dataclass(frozen=True)
class LayerShape(Shape):
    """All that a plan needs to know of a layer: where it is."""

    def __str__(self) -> str:
        return "a layer"


@dataclass(frozen=True)
class Layer:
    index: int
    name: str
    path: str
    module: nn.Module

    def __repr__(self) -> str:
        return f"<Layer {self.index}, {self.name}>"

    @property
    def shape(self) -> LayerShape:
        return LayerShape(self.path)

    @property
    def stack(self) -> str:
        return stack_of(self.name)


def find_layers(model: Any) -> list[Layer]:
    """All layers of `model` that hold a self-attention site, numbered from 0 as the sites are."""
    model = unwrap(model)
    names = dict.fromkeys(site.layer for site in find_sites(model))
    return [
        Layer(index, name, path_below_base(model, name), model.get_submodule(name)) for index, name in enumerate(names)
    ]


class Layers(Structure):
    name, unit, places, place = "layers", "layer", "layers", "layer"
    shape = LayerShape
    renumbers = True
    in_config = True

    def find(self, model: Any) -> Sequence[Layer]:
        return find_layers(model)

    def refuse(self, model: Any, removed: Removed) -> None:
        model = unwrap(model)
        layout, layers = layout_of(model), find_layers(model)
        for index in removed:
            place = [layer.index for layer in layers if layer.stack == layers[index].stack].index(index)
            reason = layout.keeps_layer(config_of(model, layers[index].name), place)
            if reason:
                raise UnsupportedModelError(
                    f"Layer {index} ({layers[index].path}) of a {model.config.model_type} model cannot be removed: "
                    f"{reason}."
                )

    def check_all(self, shapes: Shapes, removed: Removed) -> None:
        stacks: dict[str, list[int]] = {}
        for index, shape in enumerate(shapes[self.places]):
            stacks.setdefault(stack_of(shape.path), []).append(index)
        for stack, inside in stacks.items():
            if set(inside) <= set(removed):
                where = f"{stack} would have" if stack else "the model would have"
                raise PlanError(f"The plan removes all layers, {inside[0]} to {inside[-1]}: {where} none left.")

    def vanished(self, shapes: Shapes, removed: Removed) -> dict[str, set[int]]:
        gone = {shapes[self.places][index].path for index in removed}
        return {
            places: {index for index, shape in enumerate(found) if layer_of(shape.path) in gone}
            for places, found in shapes.items()
        }

    def after(self, shapes: Shapes, removed: Removed) -> Shapes:
        gone, moved = self.vanished(shapes, removed), self._moved(shapes, removed)
        return {
            places: tuple(
                changed(shape, path=_renamed(shape.path, moved))
                for index, shape in enumerate(found)
                if index not in gone[places]
            )
            for places, found in shapes.items()
        }

    def _moved(self, shapes: Shapes, removed: Removed) -> dict[str, str]:
        """The new path of each layer that stays, by its old one."""
        found: dict[str, str] = {}
        counts: dict[str, int] = {}
        for index, shape in enumerate(shapes[self.places]):
            if index in removed:
                continue
            numbered = shape.path.rpartition(".")[0]
            found[shape.path] = f"{numbered}.{counts.get(numbered, 0)}"
            counts[numbered] = counts.get(numbered, 0) + 1
        return found

    def facts(self, plan: Any) -> dict[str, Any]:
        return {"layers_removed": list(plan.removed_of(self.name))}

    def left(self, plan: Any) -> Left:
        total = len(plan.shapes[self.places])
        return Left("layers kept", total - len(plan.removed_of(self.name)), total, "layers_removed")

    def describe(self, plan: Any) -> str:
        count = len(plan.removed_of(self.name))
        return f"{count} of {len(plan.shapes[self.places])} layers" if count else ""

    def gate(self, place: Layer) -> LayerSkip:
        return LayerSkip(place.module)

    def remove(self, model: Any, removed: Removed) -> None:
        layers = find_layers(model)
        for stack in dict.fromkeys(layers[index].stack for index in removed):
            inside = [layer for layer in layers if layer.stack == stack]
            _remove_from(model, inside, {layer.index for layer in inside} & set(removed), layout_of(model))

    def make_portable(self, model: Any, removed: Removed) -> None:
        self.remove(model, removed)


def _renamed(path: str, moved: Mapping[str, str]) -> str:
    """What lies in no layer stays where it is."""
    layer = layer_of(path)
    return moved.get(layer, layer) + path.removeprefix(layer)


def _remove_from(model: Any, layers: Sequence[Layer], removed: set[int], layout: Layout) -> None:
    """Take layers out of one stack."""
    numbered: Any = model.get_submodule(layers[0].name.rpartition(".")[0])
    kept = [place for place, layer in enumerate(layers) if layer.index not in removed]
    _move_to(layers[kept[0]], layers[0], layout)
    items = [numbered[place] for place in kept]
    while len(numbered):
        del numbered[-1]
    for place, layer in enumerate(items):
        numbered.append(layer)
        for module in layer.modules():
            if getattr(module, "layer_idx", None) is not None:
                module.layer_idx = place
    _shorten_configs(model, layers, kept, layout)


def _move_to(heir: Layer, first: Layer, layout: Layout) -> None:
    """What the first layer of a stack holds for all others goes to the one that comes first now."""
    if heir is first or not layout.first_layer_only:
        return
    giver, taker = (_site_in(layer.module, layout) for layer in (first, heir))
    for name in layout.first_layer_only:
        setattr(taker, name, getattr(giver, name))
    setattr(taker, layout.first_layer_flag, True)


def _site_in(layer: nn.Module, layout: Layout) -> nn.Module:
    names = (name for name, _ in layer.named_modules() if f".{name}".endswith(f".{layout.site}"))
    return layer.get_submodule(next(names))


def _shorten_configs(model: Any, layers: Sequence[Layer], kept: Sequence[int], layout: Layout) -> None:
    """Configs must say how many layers there are: models count on it, and so do their caches."""
    path = layers[0].name
    stack = stack_of(path).rpartition(".")[2]
    name = layout.depth.get(stack) or layout.depth[""]
    own, before = config_of(model, path), len(layers)
    elsewhere = _configs_of_other_stacks(model, path, own)
    for config in configs_of(model, path):
        if id(config) in elsewhere and name == "num_layers":
            continue
        setattr(config, name, len(kept))
        for entry in PER_LAYER:
            values = getattr(config, entry, None)
            if isinstance(values, list) and len(values) >= before:
                setattr(config, entry, [values[place] for place in kept])
    if own is not model.config and "num_hidden_layers" in getattr(own, "attribute_map", {}):
        own.num_hidden_layers = len(kept)  # a decoder's own config counts its layers as an encoder's does


def _configs_of_other_stacks(model: Any, path: str, own: Any) -> set[int]:
    mine = {id(own), id(model.config)}
    return {id(config) for config in all_configs(model)} - mine


STRUCTURES.register(Layers.name, Layers())
