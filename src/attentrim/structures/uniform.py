"""Uniform attention: a site that attends equally to all keys that it may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any

import torch
from torch import Tensor

from ..architectures import Layout
from ..errors import PlanError, UnsupportedModelError
from ..projections import is_conv1d, replace, weight_and_bias
from ..routing import route
from ..sites import Site, SiteShape, find_sites
from .base import STRUCTURES, Left, Removed, Structure
from .heads import empty, head_features
from .live import LiveGate
from .means import mean_of_windows, mean_weights, once_per_pass, running_mean, sum_dtype, valid_positions
from .site_calls import cache_of, finish, named_arguments, tokens_before
from .swapped import Swapped, become


class Uniform(Structure):
    name, unit, places, place = "uniform", "site", "sites", "site"
    plural = "uniform sites"
    shape = SiteShape

    def find(self, model: Any) -> Sequence[Site]:
        return find_sites(model)

    def count(self, shapes: Sequence[SiteShape]) -> int | None:
        return None

    def check(self, index: int, shape: SiteShape, removed: Sequence[int]) -> None:
        if shape.uniform:
            raise PlanError(f"Site {index} is uniform already.")
        if not shape.heads:
            raise PlanError(f"Site {index} has no heads left: there is nothing to make uniform.")

    def shape_after(self, shape: SiteShape, removed: Sequence[int]) -> SiteShape:
        return changed(shape, heads=0, groups=0, key_heads=0, uniform=bool(shape.heads))

    def facts(self, plan: Any) -> dict[str, Any]:
        return {"uniform_sites": list(plan.removed_of(self.name))}

    def left(self, plan: Any) -> Left | None:
        count, sites = len(plan.removed_of(self.name)), len(plan.shapes[self.places])
        remark = "every word attends equally to all words"
        return Left("uniform sites", count, sites, "uniform_sites", remark=remark) if count else None

    def describe(self, plan: Any) -> str:
        count, sites = len(plan.removed_of(self.name)), len(plan.shapes[self.places])
        return f"the attention pattern of {count} of {sites} sites (uniform now)" if count else ""

    def gate(self, place: Site) -> UniformGate:
        return UniformGate(place)

    def remove(self, model: Any, removed: Removed) -> None:
        sites = find_sites(model)
        for index in removed:
            if sites[index].heads:  # without heads there is nothing to spread evenly
                _fold(sites[index])

    def refuse_portable(self, model: Any, removed: Removed) -> None:
        sites = find_sites(model)
        for index in removed:
            if sites[index].layout.shared_bias:
                raise UnsupportedModelError(
                    f"Site {index} ({sites[index].path}) cannot be uniform in a portable {sites[index].model_type} "
                    "model: a position bias shared by all sites enters its scores. Use trim, or a plan without "
                    "uniform sites."
                )

    def make_portable(self, model: Any, removed: Removed) -> None:
        sites = find_sites(model)
        for index in removed:
            _flatten_scores(sites[index])

    def unshrunk(self, model: Any, removed: Removed) -> str:
        return f"{len(removed)} uniform sites keep their projections" if removed else ""


class UniformGate(LiveGate):
    """Leads the site's attention through ours, which makes it constant."""

    def __init__(self, site: Site) -> None:
        self.site, self.state = site, route(site)

    @property
    def active(self) -> bool:
        return self.state.uniform is not False

    @property
    def called(self) -> bool:
        return "uniform" in (self.state.seen or [])

    @called.setter
    def called(self, value: bool) -> None:
        self.state.seen = []

    def set(self, value: Any) -> None:
        route(self.site)  # it may have been led back since
        self.state.uniform = value if isinstance(value, Tensor) else bool(value)

    def clear(self) -> None:
        self.state.uniform = False


def _fold(site: Site) -> None:
    """Uniform attention over values that are projected and projected again is a mean and one matrix."""
    shared = head_features([head // site.heads_per_key for head in range(site.heads)], site.head_size)
    if site.layout.fused:
        shared = shared + (site.heads + site.key_heads) * site.head_size
    output, output_bias = weight_and_bias(site.output)
    value, value_bias = weight_and_bias(site.projections[-1])
    out = _double(output)
    shared = shared.to(out.device)
    folded = out @ _double(value).index_select(0, shared)
    bias = None if output_bias is None else _double(output_bias)
    if value_bias is not None:
        moved = out @ _double(value_bias).index_select(0, shared)
        bias = moved if bias is None else bias + moved
    replace(site.output, folded.to(output), None if bias is None else bias.to(output))
    empty(site)
    become(site.module, UniformSite)
    module: Any = site.module
    module.__dict__.pop("kept_heads", None)
    module.attentrim_layout = site.layout
    module.attentrim_causal, module.attentrim_window = site.causal, site.window
    if not site.causal and site.window is None:
        become(site.output, ProjectOnce)


def _double(tensor: Tensor) -> Tensor:
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def _flatten_scores(site: Site) -> None:
    """Queries and keys of zero make all scores equal."""
    if site.layout.fused:
        fused: Any = site.projections[0]
        end = (site.heads + site.key_heads) * site.head_size
        rows = fused.weight.t() if is_conv1d(fused) else fused.weight
        parts = [rows[:end], None if fused.bias is None else fused.bias[:end]]
    else:
        parts = [part for projection in site.projections[:2] for part in (projection.weight, projection.bias)]
    for part in parts:
        if part is not None:
            part.zero_()


class UniformSite(Swapped):
    """Constant attention, folded: a mean over the keys that the site's mask allows, then one matrix."""

    attends = "uniformly"
    attentrim_layout: Layout
    attentrim_causal: bool
    attentrim_window: int | None
    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        arguments = named_arguments(self, args, kwargs)
        past = tokens_before(self, arguments)
        hidden: Tensor = arguments["hidden_states"]
        mask, cache = arguments.get(self.attentrim_layout.mask), cache_of(arguments)
        # the masks of a static cache are as wide as it may become; others end at the current token
        first = past if getattr(cache, "is_compileable", False) else None
        if self.attentrim_window is not None:
            context = mean_of_windows(self, hidden, self._valid(mask, hidden, first), cache)
        elif self.attentrim_causal:
            context = running_mean(self, hidden, self._valid(mask, hidden, first), cache, past)
        else:
            context = self._mean(mask, hidden, first)
            # One row for all positions, which what follows broadcasts; dropout would draw for each position.
            context = context.expand_as(hidden) if self.training else context
        return finish(self, arguments, context, past)

    def cache_bytes(self, width: int, dtype: torch.dtype, first: bool) -> int:
        """What the cache holds of a token: its input and a mark, or the running sum and count of those before it."""
        kept = dtype if self.attentrim_window is not None else sum_dtype(dtype)
        return (width + 1) * kept.itemsize if self.attentrim_causal else 0

    def _mean(self, mask: Any, hidden: Tensor, first: int | Tensor | None) -> Tensor:
        if mask is None:
            return hidden.mean(1, keepdim=True)
        dtype = hidden.dtype
        weights = once_per_pass(self, mask, dtype, lambda: mean_weights(self._valid(mask, hidden, first), dtype))
        return torch.bmm(weights, hidden) if weights.shape[0] == hidden.shape[0] else torch.matmul(weights, hidden)

    def _valid(self, mask: Any, hidden: Tensor, first: int | Tensor | None) -> Tensor | None:
        return valid_positions(mask, hidden, first, self.attentrim_layout.binary_mask)


class ProjectOnce(Swapped):
    """The output projection of a uniform site that sees the whole sequence: all its input rows are the same one."""

    training: bool

    def forward(self, context: Tensor) -> Tensor:
        if not self.training:
            return super().forward(context)  # type: ignore[misc, no-any-return]
        projected: Tensor = super().forward(context[:, :1])  # type: ignore[misc]
        return projected.expand(*context.shape[:-1], projected.shape[-1])


STRUCTURES.register(Uniform.name, Uniform())
