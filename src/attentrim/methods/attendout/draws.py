"""The generator's masks for one forward of the model, made site by site as the model gets there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from ...control import Control
from ...errors import MethodError
from ...sites import Site
from .generator import Generator, Passes, Valid

NOT_DECIDED = -1
Decide = Callable[["Draw", Tensor], Tensor]
"""From logits of P(keep) to a mask, within a draw."""


class Entrance(nn.Module):
    """What the generator of a stack sees of an input: what enters the stack's first layer, or its own embedding.

    `seen` is what it takes to see it again: hidden states, or the arguments of the model's embedding.
    """

    def __init__(self, control: Control, stack: str, sites: Sequence[Site], own: bool) -> None:
        super().__init__()
        self.features = sites[0].width
        self.embedding: nn.Module | None = None
        self._arguments: Any = None
        self._arrive: Callable[[str, Any], None] | None = None
        model = control.model
        if own:
            module = _embedding_of(model, stack)
            self.features = getattr(model.get_input_embeddings(), "embedding_dim", sites[0].width)
            # deepcopy keeps ties to nothing outside, so these weights are the generator's alone
            self.embedding = copy.deepcopy(module).float().eval().requires_grad_()
            control.on_call(module, self._note_arguments)
        # the first layer that runs is the entrance: some models skip layers at random while they train
        for block in dict.fromkeys(site.layer for site in sites):
            control.on_call(model.get_submodule(block), partial(self._note_entry, stack))

    def on_arrival(self, action: Callable[[str, Any], None] | None) -> None:
        self._arrive = action

    def look(self, seen: Any) -> Tensor:
        if self.embedding is None:
            hidden: Tensor = seen
        else:
            args, kwargs = seen
            hidden = self.embedding(*args, **kwargs)
        return hidden.float()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _note_arguments(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._arguments = (args, kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _note_entry(self, stack: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._arrive is None:
            return
        if self.embedding is not None and self._arguments is None:
            raise MethodError(f"The model does not call the embedding of {stack} as a module: set embedding='model'.")
        hidden = args[0] if args else kwargs["hidden_states"]
        self._arrive(stack, hidden.detach() if self.embedding is None else self._arguments)


def _embedding_of(model: Any, stack: str) -> nn.Module:
    modules = dict(model.named_modules(remove_duplicate=False))
    owners = (stack.rpartition(".")[0], stack)
    for place in (f"{owner}.{name}".strip(".") for owner in owners for name in ("embeddings", "embed_tokens")):
        if place in modules:
            return modules[place]  # type: ignore[no-any-return]
    try:
        found: nn.Module = model.get_input_embeddings()
    except (NotImplementedError, AttributeError) as error:
        raise MethodError(
            f"A {type(model).__name__} has no embedding that a generator could copy: set embedding='model'."
        ) from error
    return found


@dataclass
class Round:
    """What the generator decided for one batch, and what it takes to look at the decisions again."""

    seen: dict[str, Any] = field(default_factory=dict)
    """By stack."""
    decisions: dict[int, Tensor] = field(default_factory=dict)
    """By site, in the order of the calls: 1 kept, 0 dropped, -1 nothing to decide (padding); int8, [batch, ...]."""
    valid: dict[int, Tensor] = field(default_factory=dict)
    """By site: the pairs of real tokens, [batch, query, key]."""

    def first(self, samples: int) -> Round:
        """The round of the first so many samples of the batch."""
        size = len(next(iter(self.valid.values())))
        cut = partial(_first, size=size, samples=samples)
        return Round(cut(self.seen), cut(self.decisions), cut(self.valid))


def _first(tree: Any, size: int, samples: int) -> Any:
    def cut(tensor: Tensor) -> Tensor:
        return tensor[:samples].clone() if tensor.dim() and len(tensor) == size else tensor

    return tree_map_only(Tensor, cut, tree)


def merged(rounds: Sequence[Round]) -> Round:
    """Several rounds as one of a larger batch, padded to the longest: one pass of the generator looks at them all."""
    first = rounds[0]
    sizes = [len(next(iter(played.valid.values()))) for played in rounds]
    sites = [index for index in first.valid if all(index in played.valid for played in rounds)]
    return Round(
        {stack: _together([played.seen[stack] for played in rounds], sizes) for stack in first.seen},
        {index: _stacked([played.decisions[index] for played in rounds], NOT_DECIDED) for index in sites},
        {index: _stacked([played.valid[index] for played in rounds], 0) for index in sites},
    )


def _together(trees: Sequence[Any], sizes: Sequence[int]) -> Any:
    """What enters a stack, of several batches. Tensors without a batch axis (positions, say): the longest will do."""
    leaves = [tree_flatten(tree)[0] for tree in trees]
    joined = []
    for parts in zip(*leaves, strict=True):
        tensors = [part for part in parts if isinstance(part, Tensor)]
        if len(tensors) < len(parts):
            joined.append(parts[0])
        elif all(part.dim() and len(part) == size for part, size in zip(tensors, sizes, strict=True)):
            joined.append(_stacked(tensors, 0))
        else:
            joined.append(max(tensors, key=lambda part: part.shape[-1] if part.dim() else 0))
    return tree_unflatten(joined, tree_flatten(trees[0])[1])


def _stacked(tensors: Sequence[Tensor], fill: int) -> Tensor:
    """One after the other along the first axis, each padded at the end of the others to the largest."""
    shape = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    whole = tensors[0].new_full((sum(len(tensor) for tensor in tensors), *shape), fill)
    start = 0
    for tensor in tensors:
        place = (slice(start, start + len(tensor)), *(slice(size) for size in tensor.shape[1:]))
        whole[place] = tensor
        start += len(tensor)
    return whole


class Draw:
    """The masks of one forward: one a site, however often the model (or gradient checkpointing) comes by."""

    def __init__(
        self, generators: Mapping[str, Generator], entrances: Mapping[str, Entrance], decide: Decide, *, soft: bool
    ) -> None:
        self.generators, self.entrances, self.decide = generators, entrances, decide
        self.unit = next(iter(generators.values())).unit
        self.soft = soft
        """Whether masks are numbers that gradients flow through into the generator."""
        self.round = Round()
        self.logits: dict[int, Tensor] = {}
        self.noise: Tensor | None = None
        """The random numbers of the first site, where all sites share them."""
        self._valid: dict[tuple[int, ...], tuple[Tensor, Valid]] = {}
        self._passes: dict[str, Passes] = {}
        self._masks: dict[int, Tensor] = {}

    def arrive(self, stack: str, seen: Any) -> None:
        """An input enters a stack; a second arrival is a layer that is run again."""
        if stack in self._passes:
            return
        self.round.seen[stack] = seen
        with torch.set_grad_enabled(self.soft):
            self._passes[stack] = self.generators[stack].passes(self.entrances[stack].look(seen))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def mask(self, site: Site, allowed: Tensor) -> Tensor:
        """[batch, query or 1, key or 1], for a site whose own mask allows these pairs."""
        if site.index in self._masks:
            return self._masks[site.index]
        with torch.set_grad_enabled(self.soft):
            return self._make(site, allowed)

    def _make(self, site: Site, allowed: Tensor) -> Tensor:
        valid = self._valid_pairs(allowed)
        logits = self._passes[site.stack].next(valid)
        mask = self.decide(self, logits)
        self.round.valid[site.index] = valid.pairs
        self.logits[site.index], self._masks[site.index] = logits, mask
        return mask

    def _valid_pairs(self, allowed: Tensor) -> Valid:
        """Most sites look at the same mask: what was read off it once is read."""
        place = (allowed.data_ptr(), *allowed.shape)
        if place not in self._valid:
            self._valid[place] = allowed, Valid.among(allowed)
        return self._valid[place][1]

    def close(self) -> Round:
        """The round that was played, with what was decided."""
        for index, mask in self._masks.items():
            counted = Valid(self.round.valid[index]).decided(self.unit)
            self.round.decisions[index] = torch.where(counted, mask.detach().to(torch.int8), NOT_DECIDED)
        return self.round


def replayed(
    played: Round, generators: Mapping[str, Generator], entrances: Mapping[str, Entrance], sites: Mapping[int, Site]
) -> dict[int, Tensor]:
    """The logits of a round again, site by site, with gradients into the generators."""
    passes = {stack: generators[stack].passes(entrances[stack].look(seen)) for stack, seen in played.seen.items()}
    valid = {id(pairs): Valid(pairs) for pairs in played.valid.values()}
    return {index: passes[sites[index].stack].next(valid[id(pairs)]) for index, pairs in played.valid.items()}
