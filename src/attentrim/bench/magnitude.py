"""Structured magnitude pruning with Torch-Pruning: whole heads, and neurons between the two layers of a block.

The width of the residual stream stays, so that the outputs keep their shape. Nothing is retrained.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ..errors import MissingExtraError
from ..flops import flops
from ..inputs import example_inputs
from ..projections import features
from ..sites import find_sites
from ..structures.heads import SubsetSite
from ..structures.swapped import become
from .backends import UnavailableError

PACKAGE = "torch_pruning"
ENDLESS = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "olmo2", "smollm3")
"""Architectures on whose graph Torch-Pruning 1.6 does not come to an end."""
SEARCH_STEPS = 8
ROUND_TO = 8
"""Neurons are kept in multiples of this: matrix products of odd sizes would be slow for no gain in size."""


def prune_to_size(dense: Any, target: int) -> Any:
    """A copy of `dense` with about `target` parameters: the same share of heads and neurons in every layer."""
    if _size(dense) <= target:
        raise UnavailableError("the model is no smaller than the one to prune: give the dense one as --against")
    return _prune_to(dense, target, _size)


def prune_to_flops(dense: Any, share: float) -> Any:
    """A copy of `dense` with about this share of its FLOPs: as many heads and neurons gone from every layer."""
    return _prune_to(dense, share * flops(dense), flops)


def _prune_to(dense: Any, target: float, cost: Callable[[Any], int]) -> Any:
    """The pruned copy whose cost is nearest to a target, by bisection of the share that is pruned."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise MissingExtraError("torch-pruning", "torch-pruning", "The rival torch-pruning")
    if dense.config.model_type in ENDLESS or any(site.layout.fused for site in find_sites(dense)):
        raise UnavailableError(f"Torch-Pruning cannot follow the attention of {dense.config.model_type}")
    low, high = 0.0, 1.0
    best, apart = None, cost(dense) - target
    for _ in range(SEARCH_STEPS):
        ratio = (low + high) / 2
        pruned = _prune(dense, ratio)
        found = cost(pruned)
        if abs(found - target) < apart:
            best, apart = pruned, abs(found - target)
        low, high = (ratio, high) if found > target else (low, ratio)
    if best is None:
        raise UnavailableError("Torch-Pruning cannot get closer to the size of the model")
    return best


def _prune(dense: Any, ratio: float) -> Any:
    library: Any = importlib.import_module(PACKAGE)
    model = copy.deepcopy(dense)
    sites = find_sites(model)
    heads: dict[nn.Module, int] = {}
    for site in sites:
        query, key, value = site.projections
        heads.update({query: site.heads, key: site.key_heads, value: site.key_heads})
    with warnings.catch_warnings(), _without_shared_bias(sites):
        warnings.simplefilter("ignore")
        pruner = library.pruner.BasePruner(
            model,
            example_inputs(model, 2, 16),
            importance=library.importance.GroupMagnitudeImportance(),
            pruning_ratio=ratio,
            head_pruning_ratio=ratio,
            num_heads=heads,
            prune_num_heads=True,
            prune_head_dims=False,
            round_to=ROUND_TO,
            ignored_layers=_kept(model, sites, heads),
            output_transform=lambda output: output[0],
            # its defaults are dictionaries that all pruners of a process share
            in_channel_groups={},
            out_channel_groups={},
        )
        gone: dict[nn.Module, set[int]] = {}
        for group in pruner.step(interactive=True):
            for dependency, features_gone in group:
                if pruner.DG.is_out_channel_pruning_fn(dependency.handler):
                    gone.setdefault(dependency.target.module, set()).update(features_gone)
            group.prune()
    for site in sites:
        query = site.projections[0]
        if site.layout.shared_bias and query in gone:
            kept = [head for head in range(site.heads) if head * site.head_size not in gone[query]]
            become(site.module, SubsetSite)
            site.module.kept_heads = kept  # type: ignore[assignment]
        for name in site.layout.head_counts:
            setattr(site.module, name, pruner.num_heads[query])
        for name in site.layout.widths:
            setattr(site.module, name, features(query)[1])
    return model


@contextmanager
def _without_shared_bias(sites: list[Any]) -> Iterator[None]:
    """Sites run without the bias that all share: Torch-Pruning keeps every head that meets it in the graph."""

    def leave_out(module: nn.Module, args: Any, kwargs: Any) -> Any:
        names = [*inspect.signature(type(module).forward).parameters][1:]
        return (), {**dict(zip(names, args, strict=False)), **kwargs, "position_bias": None}

    biased = [site.module for site in sites if site.layout.shared_bias]
    hooks = [module.register_forward_pre_hook(leave_out, with_kwargs=True) for module in biased]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _kept(model: nn.Module, sites: list[Any], heads: dict[nn.Module, int]) -> list[nn.Module]:
    """All but the projections into heads and the layers inside blocks that do not write to the residual stream."""
    blocks = tuple(f"{site.layer}." for site in sites)
    widths = {site.width for site in sites}
    free = {
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(blocks) and module.out_features not in widths
    }
    return [
        module
        for module in model.modules()
        if not list(module.children()) and module not in free and module not in heads
    ]


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
