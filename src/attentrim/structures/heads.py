"""Attention heads: one unit per head; heads that share keys and values go together."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any

import torch
from torch import Tensor

from ..architectures import Layout
from ..attention import of_heads
from ..errors import PlanError
from ..projections import (
    select_inputs,
    select_outputs,
    silence_inputs,
    widen_inputs,
    widen_outputs,
)
from ..sites import Site, SiteShape, find_sites
from .base import STRUCTURES, Left, Removed, Structure, kept_units
from .configs import configs_of
from .live import FeatureGate
from .site_calls import cache_of, finish, full_bias, named_arguments, tells_length, tokens_before
from .swapped import BiasOnly, Swapped, become


class Heads(Structure):
    name, unit, places, place = "heads", "head", "sites", "site"
    shape = SiteShape
    block = "attention"
    most_units = 2**16
    within = True

    def find(self, model: Any) -> Sequence[Site]:
        return find_sites(model)

    def units(self, shape: SiteShape) -> int:
        return shape.heads

    def gates(self, shape: SiteShape) -> int:
        return shape.groups

    def group(self, shape: SiteShape, unit: int) -> tuple[int, ...]:
        size = shape.heads // shape.groups
        return tuple(range(unit * size, (unit + 1) * size))

    def check(self, index: int, shape: SiteShape, removed: Sequence[int]) -> None:
        super().check(index, shape, removed)
        size, gone = shape.heads // shape.groups, set(removed)
        for group in {head // size for head in removed}:
            members = set(self.group(shape, group))
            if not members <= gone:
                why = "share keys and values" if shape.key_heads == shape.groups else "are normalised as one"
                raise PlanError(
                    f"Heads {sorted(members)} of site {index} {why}: they can only be removed together. Got "
                    f"{sorted(members & gone)} only."
                )

    def shape_after(self, shape: SiteShape, removed: Sequence[int]) -> SiteShape:
        kept = shape.heads - len(removed)
        groups, key_heads = (kept * count // shape.heads for count in (shape.groups, shape.key_heads))
        return changed(shape, heads=kept, groups=groups, key_heads=key_heads)

    def facts(self, plan: Any) -> dict[str, Any]:
        final = plan.final(self.places)
        total, removed = self._counts(plan)
        return {
            "sparsity": removed / total if total else 0.0,
            "heads_total": total,
            "heads_removed": removed,
            "heads_kept": [shape.heads if shape else 0 for shape in final],
        }

    def _counts(self, plan: Any) -> tuple[int, int]:
        """All heads, and those that are gone: by name, or with their layer. Those of uniform sites are not."""
        shapes, gone = plan.shapes[self.places], plan.vanished().get(self.places, set())
        removed = plan.removed_of(self.name)
        total = sum(shape.heads for shape in shapes)
        return total, sum(
            shape.heads if index in gone else len(removed.get(index, ())) for index, shape in enumerate(shapes)
        )

    def left(self, plan: Any) -> Left:
        facts = self.facts(plan)
        uniform = facts["heads_total"] - facts["heads_removed"] - sum(facts["heads_kept"])
        kept, total = sum(facts["heads_kept"]), facts["heads_total"]
        where = "in uniform sites" if uniform else ""
        return Left("attention heads kept", kept, total, "heads_kept", uniform, where)

    def describe(self, plan: Any) -> str:
        total, removed = self._counts(plan)
        return f"{removed} of {total} attention heads" if removed else ""

    def gate(self, place: Site) -> FeatureGate:
        size = place.heads_per_group * place.head_size
        noun = "heads" if place.heads == place.groups else "key/value groups"
        return FeatureGate(place.output, place.groups, size, f"Site {place.index}", noun)

    def remove(self, model: Any, removed: Removed) -> None:
        sites = find_sites(model)
        for index, heads in removed.items():
            kept = kept_units(sites[index].heads, heads)
            _narrow(sites[index], kept) if kept else _behead(sites[index])

    def freeze(self, model: Any) -> None:
        sites = find_sites(model)
        for site in sites:
            if site.heads:
                continue
            for module in _head_modules(site):
                module.requires_grad_(False)
            if not site.uniform:
                site.output.weight.requires_grad_(False)
        _freeze_positions(model, sites)

    def make_portable(self, model: Any, removed: Removed) -> None:
        sites = find_sites(model)
        for index, heads in removed.items():
            silence_inputs(sites[index].output, head_features(heads, sites[index].head_size))
        for stack, most in self._common(sites, removed).items():
            self._shrink(model, [site for site in sites if site.stack == stack], removed, most)

    def _common(self, sites: Sequence[Site], removed: Removed) -> dict[str, int]:
        """By stack of layers, the key/value groups that each site must have; stacks that can lose some only."""
        found = {}
        for stack in {site.stack for site in sites}:
            inside = [site for site in sites if site.stack == stack]
            most = max((site.heads - len(removed.get(site.index, ()))) // site.heads_per_group for site in inside)
            equal = len({site.groups for site in inside}) == 1
            if not inside[0].layout.config_heads or not equal:
                continue
            counts = range(max(1, most), inside[0].groups)
            # a config can refuse some numbers of heads, such as those that the width is no multiple of
            possible = next((count for count in counts if _config_takes(inside[0], count)), None)
            if possible:
                found[stack] = possible
        return found

    def _shrink(self, model: Any, sites: Sequence[Site], removed: Removed, groups: int) -> None:
        """Each site keeps its own heads, and as many silent ones as the site with the most heads needs it to have."""
        heads = groups * sites[0].heads_per_group
        for site in sites:
            kept = kept_units(site.heads, removed.get(site.index, ()))
            _select(site, kept)
            for projection, count in zip(site.projections, (heads, groups, groups), strict=True):
                widen_outputs(projection, count * site.head_size)
            widen_inputs(site.output, heads * site.head_size)
        names = sites[0].layout.config_heads
        for config in configs_of(model, sites[0].name):
            config.head_dim = sites[0].head_size
            for name, count in zip(names, (heads, groups), strict=True):
                setattr(config, name, count)

    def unshrunk(self, model: Any, removed: Removed) -> str:
        sites = find_sites(model)
        shrunk = self._common(sites, removed)
        left = sum(
            len(heads) - (sites[index].groups - shrunk[sites[index].stack]) * sites[index].heads_per_group
            if sites[index].stack in shrunk
            else len(heads)
            for index, heads in removed.items()
        )
        return f"{left} of the removed heads stay as zeros" if left else ""

    def cost(self, place: Site, length: int) -> tuple[float, float]:
        own = place.heads_per_group * place.head_size
        shared = own // place.heads_per_key
        seen = min(length, place.window or length)
        parameters = 2 * own * place.width + 2 * shared * place.width
        return parameters, 2 * parameters + 4 * own * seen


def _config_takes(site: Site, groups: int) -> bool:
    """Whether a model with so many key/value groups can be loaded again."""
    config = copy.copy(site.module.config)
    for name, count in zip(site.layout.config_heads, (groups * site.heads_per_group, groups), strict=True):
        setattr(config, name, count)
    try:
        config.validate_architecture()  # type: ignore[union-attr, operator]
    except ValueError:
        return False
    return True


def head_features(heads: Sequence[int], head_size: int) -> Tensor:
    """The features of these heads."""
    return (torch.tensor(list(heads), dtype=torch.long)[:, None] * head_size + torch.arange(head_size)).flatten()


def _select(site: Site, kept: list[int]) -> None:
    """Keep the projections of some heads."""
    keys = sorted({head // site.heads_per_key for head in kept})
    own, shared = head_features(kept, site.head_size), head_features(keys, site.head_size)
    if site.layout.fused:
        key, value = site.heads * site.head_size, (site.heads + site.key_heads) * site.head_size
        select_outputs(site.projections[0], torch.cat([own, shared + key, shared + value]))
    else:
        for projection, index in zip(site.projections, (own, shared, shared), strict=True):
            select_outputs(projection, index)
    for projection in site.positions:
        select_outputs(projection, own)
    select_inputs(site.output, own)


def _narrow(site: Site, kept: list[int]) -> None:
    """Keep some heads."""
    _select(site, kept)
    for name in site.layout.head_counts:
        setattr(site.module, name, len(kept))
    for name in site.layout.widths:
        setattr(site.module, name, len(kept) * site.head_size)
    if site.layout.shared_bias:
        present = getattr(site.module, "kept_heads", range(site.heads))
        become(site.module, SubsetSite)
        site.module.kept_heads = [present[head] for head in kept]  # type: ignore[assignment]
    if site.layout.thinned_forward is not None:
        become(site.module, ThinnedSite)
        site.module.attentrim_layout = site.layout  # type: ignore[assignment]


def _behead(site: Site) -> None:
    """No head stays."""
    select_inputs(site.output, torch.arange(0))
    empty(site)
    become(site.module, HeadlessSite)
    become(site.output, BiasOnly)
    site.module.attentrim_layout = site.layout  # type: ignore[assignment]


def empty(site: Site) -> None:
    """Projections without a row: they take no space, and make stock transformers refuse the checkpoint."""
    for projection in (*site.projections, *site.positions):
        select_outputs(projection, torch.arange(0))


def _head_modules(site: Site) -> list[Any]:
    """Everything in a site that serves its heads: projections, and norms of queries and keys."""
    norms = [module for name, module in site.module.named_children() if name in ("q_norm", "k_norm")]
    return [*site.projections, *site.positions, *norms]


def _freeze_positions(model: Any, sites: Sequence[Site]) -> None:
    """Where no site of a stack has heads, nothing reads the positions that all of them share."""
    with_heads = {site.stack for site in sites if site.heads}
    for stack in {site.stack for site in sites} - with_heads:
        children = dict(model.get_submodule(stack).named_modules())
        for path in sites[0].layout.shared_positions:
            if path in children:
                children[path].requires_grad_(False)


class SubsetSite(Swapped):
    """Some heads are gone, and a bias made for all of them enters the scores."""

    kept_heads: list[int]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        arguments = named_arguments(self, args, kwargs)
        bias = full_bias(self, arguments, tokens_before(self, arguments))
        arguments["position_bias"] = None if bias is None else of_heads(bias, self.kept_heads)
        result = super().forward(**arguments)  # type: ignore[misc]
        # t5 hands the bias on to the next block, which may have other heads
        return (result[0], bias, *result[2:]) if hasattr(self, "compute_bias") else result


class ThinnedSite(Swapped):
    """Some heads are gone, and the stock forward would look for as many as the config says."""

    attentrim_layout: Layout

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        assert self.attentrim_layout.thinned_forward is not None
        return self.attentrim_layout.thinned_forward(self, *args, **kwargs)


class HeadlessSite(Swapped):
    """No head is left: only the bias of the output projection is added."""

    attends = "not at all"
    layer_idx: int

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        arguments = named_arguments(self, args, kwargs)
        past = tokens_before(self, arguments)
        hidden: Tensor = arguments["hidden_states"]
        cache = cache_of(arguments)
        if cache is not None and tells_length(cache, self.layer_idx):
            # an empty layer would say that there were no tokens
            marker = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[1], 1)
            cache.update(marker, marker, self.layer_idx)
        return finish(self, arguments, hidden[..., :0], past)

    def cache_bytes(self, width: int, dtype: torch.dtype, first: bool) -> int:
        """What the cache holds of a token; `first` of the sites of its kind, full or sliding."""
        return 2 * dtype.itemsize if first else 0


STRUCTURES.register(Heads.name, Heads())
