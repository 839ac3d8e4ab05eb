"""Take what a plan removes out of a model for good (`trim`), or write it into stock weights (`portable`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .checkpoint import stored_plan, with_plan
from .duplicate import duplicate
from .errors import PlanError, UnsupportedModelError
from .plan import Plan
from .sites import Site, find_sites, is_conv1d, unwrap
from .trimmed import BiasOnly, HeadlessSite, ProjectOnce, SubsetSite, UniformSite, become

Model = TypeVar("Model", bound=nn.Module)


@torch.inference_mode(False)
def trim(model: Model, plan: Plan) -> Model:
    """A copy of `model` without the attention that `plan` removes: smaller, faster, the same answers.

    Save it with `save_pretrained`; with attentrim imported, plain `from_pretrained` loads it again. A trimmed model
    can be trimmed again, by a plan made for it as it is then.
    """
    trimmed = _copy_for(model, plan)
    operate(trimmed, plan)
    before = stored_plan(trimmed)
    with_plan(trimmed, before.then(plan) if before else plan)
    return trimmed


@torch.inference_mode(False)
def portable(model: Model, plan: Plan) -> Model:
    """A copy of `model` of full shape and stock classes that answers as if trimmed, and loads without attentrim."""
    if stored_plan(unwrap(model)):
        raise PlanError("This model is trimmed already. Make a portable model from the full one.")
    same_shape = _copy_for(model, plan)
    sites = find_sites(same_shape)
    for index in plan.uniform:
        if sites[index].layout.shared_bias:
            raise UnsupportedModelError(
                f"Site {index} ({sites[index].path}) cannot be uniform in a portable {plan.model_type} model: a "
                "position bias shared by all sites enters its scores. Use trim, or a plan without uniform sites."
            )
    with torch.no_grad():
        for site in sites:
            _silence(site, plan.heads.get(site.index, ()))
            if site.index in plan.uniform:
                _flatten_scores(site)
    return same_shape


def operate(model: nn.Module, plan: Plan) -> None:
    """Trim `model` in place. Weights may be on any device, the meta device included."""
    with torch.no_grad():
        for site in find_sites(model):
            kept = plan.kept(site.index)
            if not kept and site.heads:
                _behead(site)
            elif site.index in plan.uniform:
                _fold(site, kept)
            elif len(kept) < site.heads:
                _narrow(site, kept)
    freeze_unused(model)


def freeze_unused(model: nn.Module) -> None:
    """Parameters that trimmed sites no longer read get no gradient, and must not be waited for by data parallelism."""
    sites = find_sites(model)
    for site in sites:
        if site.heads:
            continue
        for module in _head_modules(site):
            module.requires_grad_(False)
        if not site.uniform:
            site.output.weight.requires_grad_(False)
    with_heads = {site.stack for site in sites if site.heads}
    for stack in {site.stack for site in sites} - with_heads:
        children = dict(model.get_submodule(stack).named_modules())
        for path in sites[0].layout.shared_positions:
            if path in children:
                children[path].requires_grad_(False)


def _copy_for(model: Model, plan: Plan) -> Model:
    if not isinstance(plan, Plan):
        raise PlanError(f"A plan is needed (Plan.of or Plan.load). Got {type(plan).__name__} instead.")
    inner = unwrap(model)
    sites = find_sites(inner)
    plan.check(sites)
    if any(hasattr(module, "base_layer") or hasattr(module, "modules_to_save") for module in inner.modules()):
        raise UnsupportedModelError("This model carries adapters: merge them first (merge_and_unload).")
    for site in sites:
        for module in (*site.projections, site.output):
            if not (isinstance(module, nn.Linear) or is_conv1d(module)):
                raise UnsupportedModelError(
                    f"Site {site.index} ({site.name}) has a {type(module).__name__} where a Linear is expected: trim "
                    "before quantising."
                )
    if any(parameter.is_meta for parameter in inner.parameters()):
        raise UnsupportedModelError("Some weights are offloaded: load the model without offloading to trim it.")
    return duplicate(inner, Tensor.clone)  # type: ignore[no-any-return]


# The three operations on a site


def _narrow(site: Site, kept: list[int]) -> None:
    """Keep some heads."""
    groups = sorted({head // site.heads_per_group for head in kept})
    own, shared = _features(kept, site.head_size), _features(groups, site.head_size)
    if site.layout.fused:
        block = site.heads * site.head_size
        _select_outputs(site.projections[0], torch.cat([own, own + block, own + 2 * block]))
    else:
        for projection, index in zip(site.projections, (own, shared, shared), strict=True):
            _select_outputs(projection, index)
    for projection in site.positions:
        _select_outputs(projection, own)
    weight, bias = _weight_and_bias(site.output)
    _replace(site.output, weight.index_select(1, own.to(weight.device)), bias)
    for name in site.layout.head_counts:
        setattr(site.module, name, len(kept))
    for name in site.layout.widths:
        setattr(site.module, name, len(own))
    if site.layout.shared_bias:
        present = getattr(site.module, "kept_heads", range(site.heads))
        become(site.module, SubsetSite)
        site.module.kept_heads = [present[head] for head in kept]  # type: ignore[assignment]


def _fold(site: Site, kept: list[int]) -> None:
    """Uniform attention over values that are projected and projected again is a mean and one matrix."""
    groups = [head // site.heads_per_group for head in kept]
    own, shared = _features(kept, site.head_size), _features(groups, site.head_size)
    output, output_bias = _weight_and_bias(site.output)
    value, value_bias = _weight_and_bias(site.projections[-1])
    if site.layout.fused:
        shared = shared + 2 * site.heads * site.head_size
    out = _double(output)
    device = out.device
    out = out.index_select(1, own.to(device))
    folded = out @ _double(value).index_select(0, shared.to(device))
    bias = None if output_bias is None else _double(output_bias)
    if value_bias is not None:
        moved = out @ _double(value_bias).index_select(0, shared.to(device))
        bias = moved if bias is None else bias + moved
    _replace(site.output, folded.to(output), None if bias is None else bias.to(output))
    _empty(site)
    become(site.module, UniformSite)
    module: Any = site.module
    module.attentrim_layout = site.layout
    module.attentrim_causal, module.attentrim_window = site.causal, site.window
    if not site.causal and site.window is None:
        become(site.output, ProjectOnce)


def _behead(site: Site) -> None:
    """No head stays."""
    weight, bias = _weight_and_bias(site.output)
    _replace(site.output, weight[:, :0], bias)
    _empty(site)
    become(site.module, HeadlessSite)
    become(site.output, BiasOnly)
    site.module.attentrim_layout = site.layout  # type: ignore[assignment]


def _empty(site: Site) -> None:
    """Projections without a row: they take no space, and make stock transformers refuse the checkpoint."""
    for projection in (*site.projections, *site.positions):
        _select_outputs(projection, torch.arange(0))


# The two of a portable model


def _silence(site: Site, heads: Iterable[int]) -> None:
    weight = site.output.weight
    columns = _features(heads, site.head_size).to(weight.device)  # type: ignore[arg-type]
    weight.index_fill_(0 if is_conv1d(site.output) else 1, columns, 0.0)  # type: ignore[operator]


def _flatten_scores(site: Site) -> None:
    if site.layout.fused:
        fused: Any = site.projections[0]
        end = 2 * site.heads * site.head_size
        rows = fused.weight.t() if is_conv1d(fused) else fused.weight
        parts = [rows[:end], None if fused.bias is None else fused.bias[:end]]
    else:
        parts = [part for projection in site.projections[:2] for part in (projection.weight, projection.bias)]
    for part in parts:
        if part is not None:
            part.zero_()


# Linear and Conv1D alike: weights as [output, input]


def _weight_and_bias(projection: Any) -> tuple[Tensor, Tensor | None]:
    return projection.weight.t() if is_conv1d(projection) else projection.weight, projection.bias


def _select_outputs(projection: nn.Module, index: Tensor) -> None:
    weight, bias = _weight_and_bias(projection)
    index = index.to(weight.device)
    _replace(projection, weight.index_select(0, index), None if bias is None else bias.index_select(0, index))


def _replace(projection: Any, weight: Tensor, bias: Tensor | None) -> None:
    trainable = projection.weight.requires_grad
    outputs, inputs = weight.shape
    if is_conv1d(projection):
        projection.nx, projection.nf, weight = inputs, outputs, weight.t()
    else:
        projection.in_features, projection.out_features = inputs, outputs
    projection.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format), trainable)
    if bias is not None:
        projection.bias = nn.Parameter(bias.detach().clone(), trainable)


def _features(heads: Iterable[int], head_size: int) -> Tensor:
    return (torch.tensor(list(heads), dtype=torch.long)[:, None] * head_size + torch.arange(head_size)).flatten()


def _double(tensor: Tensor) -> Tensor:
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def _head_modules(site: Site) -> list[nn.Module]:
    """Everything in a site that serves its heads: projections, and norms of queries and keys."""
    norms = [module for name, module in site.module.named_children() if name in ("q_norm", "k_norm")]
    return [*site.projections, *site.positions, *norms]
