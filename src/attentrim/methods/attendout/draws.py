"""The generator's masks for one forward of the model, made site by site as the model gets there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from ...sites import Site
from .generator import Passes, Valid
from .networks import Networks

NOT_DECIDED = -1
Decide = Callable[["Draw", Tensor], Tensor]
"""From logits of P(keep) to a mask, within a draw."""


@dataclass
class Round:
    """What the generator decided for one batch, and what it takes to look at the decisions again."""

    seen: dict[str, Any] = field(default_factory=dict)
    """By stack."""
    decisions: dict[int, Tensor] = field(default_factory=dict)
    """By site, in the order of the calls: 1 kept, 0 dropped, -1 nothing to decide (padding); int8, [batch, ...]."""
    valid: dict[int, Tensor] = field(default_factory=dict)
    """By site: the pairs of real tokens, [batch, query, key]."""

    @property
    def samples(self) -> int:
        return len(next(iter(self.valid.values())))

    def first(self, samples: int) -> Round:
        """The round of the first `samples` samples of the batch."""
        cut = partial(_first, size=self.samples, samples=samples)
        return Round(cut(self.seen), cut(self.decisions), cut(self.valid))


def _first(tree: Any, size: int, samples: int) -> Any:
    def cut(tensor: Tensor) -> Tensor:
        return tensor[:samples].clone() if tensor.dim() and len(tensor) == size else tensor

    return tree_map_only(Tensor, cut, tree)


def merged(rounds: Sequence[Round]) -> Round:
    """Several rounds as one of a larger batch, padded to the longest: one pass of the generator looks at them all."""
    first = rounds[0]
    sizes = [one.samples for one in rounds]
    sites = [index for index in first.valid if all(index in one.valid for one in rounds)]
    return Round(
        {stack: _together([one.seen[stack] for one in rounds], sizes) for stack in first.seen},
        {index: _stacked([one.decisions[index] for one in rounds], NOT_DECIDED) for index in sites},
        {index: _stacked([one.valid[index] for one in rounds], 0) for index in sites},
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
    """The masks of one forward: one per site, however often the model (or gradient checkpointing) calls it."""

    def __init__(self, networks: Networks, decide: Decide, *, soft: bool) -> None:
        self.networks, self.decide = networks, decide
        self.unit = next(iter(networks.generators.values())).unit
        self.soft = soft
        """Whether masks are numbers that gradients flow through into the generator."""
        self.round = Round()
        self.logits: dict[int, Tensor] = {}
        self.noise: Tensor | None = None
        """The random numbers of the first site, where all sites share them."""
        self._valid: dict[tuple[int, ...], tuple[Tensor, Valid]] = {}
        self._passes: dict[str, Passes] = {}
        self._masks: dict[int, Tensor] = {}

    def on_input(self, stack: str, seen: Any) -> None:
        """An input enters a stack. Only the first call counts; the others are of later layers, or of repeated ones."""
        if stack in self._passes:
            return
        self.round.seen[stack] = seen
        with torch.set_grad_enabled(self.soft):
            self._passes[stack] = _passes(self.networks, stack, seen)

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
        """Most sites look at the same mask: it is read once."""
        place = (allowed.data_ptr(), *allowed.shape)
        if place not in self._valid:
            self._valid[place] = allowed, Valid.among(allowed)
        return self._valid[place][1]

    def close(self) -> Round:
        """The round of this forward, with what was decided."""
        for index, mask in self._masks.items():
            counted = Valid(self.round.valid[index]).decided(self.unit)
            self.round.decisions[index] = torch.where(counted, mask.detach().to(torch.int8), NOT_DECIDED)
        return self.round


def logits_again(decided: Round, networks: Networks, sites: Mapping[int, Site]) -> dict[int, Tensor]:
    """The logits of a round once more, site by site, with gradients into the generators."""
    passes = {stack: _passes(networks, stack, seen) for stack, seen in decided.seen.items()}
    valid = {id(pairs): Valid(pairs) for pairs in decided.valid.values()}
    return {index: passes[sites[index].stack].next(valid[id(pairs)]) for index, pairs in decided.valid.items()}


def _passes(networks: Networks, stack: str, seen: Any) -> Passes:
    return networks.generators[stack].passes(networks.entrances[stack].features_of(seen))
