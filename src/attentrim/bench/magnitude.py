"""Structured magnitude pruning with Torch-Pruning: whole heads, and neurons between the two layers of a block.

The width of the residual stream stays, so that the outputs keep their shape. Nothing is retrained.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import warnings
from typing import Any

from torch import nn

from ..errors import MissingExtraError
from ..inputs import example_inputs
from ..projections import features
from ..sites import find_sites
from .backends import UnavailableError

PACKAGE = "torch_pruning"
ENDLESS = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures on whose graph Torch-Pruning 1.6 does not come to an end."""
SEARCH_STEPS = 8
ROUND_TO = 8
"""Neurons are kept in multiples of this: matrix products of odd sizes would be slow for no gain in size."""


def prune_to_size(dense: Any, target: int) -> Any:
    """A copy of `dense` with about `target` parameters: the same share of heads and neurons in every layer."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise MissingExtraError("torch-pruning", "torch-pruning", "The rival torch-pruning")
    if _size(dense) <= target:
        raise UnavailableError("the model is no smaller than the one to prune: give the dense one as --against")
    if dense.config.model_type in ENDLESS or any(site.layout.fused for site in find_sites(dense)):
        raise UnavailableError(f"Torch-Pruning cannot follow the attention of {dense.config.model_type}")
    low, high = 0.0, 1.0
    best = dense
    for _ in range(SEARCH_STEPS):
        ratio = (low + high) / 2
        pruned = _prune(dense, ratio)
        if abs(_size(pruned) - target) < abs(_size(best) - target):
            best = pruned
        low, high = (ratio, high) if _size(pruned) > target else (low, ratio)
    if best is dense:
        raise UnavailableError("Torch-Pruning came no nearer to the size of the model")
    return best


def _prune(dense: Any, ratio: float) -> Any:
    library: Any = importlib.import_module(PACKAGE)
    model = copy.deepcopy(dense)
    sites = find_sites(model)
    heads: dict[nn.Module, int] = {}
    for site in sites:
        query, key, value = site.projections
        heads.update({query: site.heads, key: site.groups, value: site.groups})
    with warnings.catch_warnings():
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
        pruner.step()
    for site in sites:
        for name in site.layout.head_counts:
            setattr(site.module, name, pruner.num_heads[site.projections[0]])
        for name in site.layout.widths:
            setattr(site.module, name, features(site.projections[0])[1])
    return model


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
