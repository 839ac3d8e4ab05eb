"""Feed-forward neurons: one unit per intermediate feature of a block, after the activation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, ClassVar

import torch
from torch import nn

from ..architectures import FeedForward
from ..errors import UnsupportedModelError
from ..projections import features, select_inputs, select_outputs, widen_inputs, widen_outputs
from ..shapes import Shape, check_count
from ..sites import layer_of, layout_of, path_below_base, stack_of, unwrap
from .base import STRUCTURES, Left, Removed, Structure, kept_units
from .configs import config_of, configs_of
from .live import FeatureGate
from .swapped import BiasOnly, become


@dataclass(frozen=True)
class BlockShape(Shape):
    """The shape of one feed-forward block."""

    column: ClassVar[str] = "neurons"
    neurons: int

    def check(self) -> None:
        super().check()
        check_count(self.neurons, "neurons", self.path)

    def left_of(self, before: BlockShape) -> str:
        return f"{self.neurons:,} of {before.neurons:,}"

    def share_of(self, before: BlockShape) -> float | None:
        return self.neurons / before.neurons if before.neurons else 0.0

    def __str__(self) -> str:
        return f"{self.neurons} neurons"


@dataclass(frozen=True)
class Block:
    """One feed-forward block with its projections, as it is now."""

    index: int
    name: str
    path: str
    layout: FeedForward
    inputs: tuple[nn.Module, ...]
    """The projections into it, the gate of a gated block among them."""
    output: nn.Module
    neurons: int
    width: int
    """Features that enter it."""

    def __repr__(self) -> str:
        return f"<Block {self.index}, {self.name}: {self.shape}>"

    @property
    def shape(self) -> BlockShape:
        return BlockShape(self.path, self.neurons)

    @property
    def projections(self) -> tuple[nn.Module, ...]:
        return (*self.inputs, self.output)

    @property
    def stack(self) -> str:
        return stack_of(layer_of(self.name))


def find_blocks(model: Any) -> list[Block]:
    """All feed-forward blocks of `model`, numbered from 0: encoder before decoder, CLIP's text before vision."""
    model = unwrap(model)
    layout = layout_of(model).feed_forward
    modules = dict(model.named_modules())
    names = [name.removesuffix(f".{layout.output}") for name in modules if name.endswith(f".{layout.output}")]
    return [
        _describe(index, model, name, modules, layout)
        for index, name in enumerate(name for name in names if _inputs(name, modules, layout))
    ]


def _inputs(name: str, modules: Mapping[str, nn.Module], layout: FeedForward) -> list[nn.Module]:
    paths = [f"{name}.{path}" for path in layout.inputs]
    return [modules[path] for path in paths if path in modules]


def _describe(index: int, model: Any, name: str, modules: Mapping[str, nn.Module], layout: FeedForward) -> Block:
    inputs, output = _inputs(name, modules, layout), modules[f"{name}.{layout.output}"]
    width, rows = features(inputs[0])
    return Block(index, name, path_below_base(model, name), layout, tuple(inputs), output, rows // layout.fused, width)


class Neurons(Structure):
    name, unit, places, place = "neurons", "neuron", "blocks", "block"
    shape = BlockShape
    block = "feed-forward"
    within = True
    traced = False

    def find(self, model: Any) -> Sequence[Block]:
        return find_blocks(model)

    def units(self, shape: BlockShape) -> int:
        return shape.neurons

    def shape_after(self, shape: BlockShape, removed: Sequence[int]) -> BlockShape:
        return changed(shape, neurons=shape.neurons - len(removed))

    def refuse(self, model: Any, removed: Removed) -> None:
        if removed and not find_blocks(model):
            raise UnsupportedModelError(
                f"This {type(unwrap(model)).__name__} has no feed-forward block that attentrim can take apart."
            )

    def facts(self, plan: Any) -> dict[str, Any]:
        return {"neurons_kept": [shape.neurons if shape else 0 for shape in plan.final(self.places)]}

    def left(self, plan: Any) -> Left:
        total = sum(shape.neurons for shape in plan.shapes[self.places])
        return Left("neurons kept", sum(self.facts(plan)["neurons_kept"]), total, "neurons_kept")

    def describe(self, plan: Any) -> str:
        total = sum(shape.neurons for shape in plan.shapes[self.places])
        removed = total - sum(self.facts(plan)["neurons_kept"])
        return f"{removed:,} of {total:,} neurons" if removed else ""

    def gate(self, place: Block) -> FeatureGate:
        return FeatureGate(place.output, place.neurons, 1, f"Block {place.index}", "neurons")

    def remove(self, model: Any, removed: Removed) -> None:
        blocks = find_blocks(model)
        for index, neurons in removed.items():
            kept = kept_units(blocks[index].neurons, neurons)
            _narrow(blocks[index], kept)
            if not kept:
                become(blocks[index].output, BiasOnly)

    def freeze(self, model: Any) -> None:
        for block in find_blocks(model):
            if block.neurons:
                continue
            for projection in block.inputs:
                projection.requires_grad_(False)
            block.output.weight.requires_grad_(False)

    def make_portable(self, model: Any, removed: Removed) -> None:
        blocks = find_blocks(model)
        for index, neurons in removed.items():
            _narrow(blocks[index], kept_units(blocks[index].neurons, neurons))
        for name, together in _by_config(model, blocks):
            # read again: the blocks are narrower now
            width = max(1, *(features(block.output)[0] for block in together))
            for block in together:
                _widen(block, width)
            for config in configs_of(model, together[0].name):
                setattr(config, name, width)

    def unshrunk(self, model: Any, removed: Removed) -> str:
        blocks, left = find_blocks(model), 0
        for _, together in _by_config(model, blocks):
            widths = [block.neurons - len(removed.get(block.index, ())) for block in together]
            left += sum(max(1, *widths) - width for width in widths)
        return f"{left:,} neurons are padding: all blocks are as wide as the widest" if left else ""

    def cost(self, place: Block, length: int) -> tuple[float, float]:
        parameters = (len(place.inputs) * place.layout.fused + 1) * place.width
        return parameters, 2 * parameters


def _narrow(block: Block, kept: list[int]) -> None:
    """Keep some neurons."""
    index = torch.tensor(kept, dtype=torch.long)
    parts = torch.arange(block.layout.fused)[:, None] * block.neurons
    for projection in block.inputs:
        select_outputs(projection, (parts + index).flatten())
    select_inputs(block.output, index)


def _widen(block: Block, width: int) -> None:
    """Add neurons that do nothing."""
    neurons = features(block.output)[0]
    parts = block.layout.fused
    zero = parts * neurons
    index = torch.full((parts, width), zero)
    index[:, :neurons] = torch.arange(zero).view(parts, neurons)
    for projection in block.inputs:
        widen_outputs(projection, zero + 1)  # a row of zeros to take from
        select_outputs(projection, index.flatten())
    widen_inputs(block.output, width)


def _by_config(model: Any, blocks: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """Blocks whose width one entry of a config says, with the name of that entry."""
    found: dict[tuple[str, str], list[Block]] = {}
    for block in blocks:
        names = block.layout.width
        name = names if isinstance(names, str) else names[block.stack.rpartition(".")[2]]
        found.setdefault((config_of(model, block.name).model_type, name), []).append(block)
    return [(name, together) for (_, name), together in found.items()]


STRUCTURES.register(Neurons.name, Neurons())
