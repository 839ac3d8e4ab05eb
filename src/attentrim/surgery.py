"""Take what a plan removes out of a model for good (`trim`), or write it into stock weights (`portable`)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .checkpoint.stored import full_size, stored_plan, with_plan
from .duplicate import duplicate, skeleton
from .errors import PlanError, UnsupportedModelError
from .flops import flops, most_tokens
from .gguf import forget_gguf
from .plan import Plan
from .projections import is_projection
from .sharding import shape_of
from .sites import unwrap
from .structures import kinds, places_of

Model = TypeVar("Model", bound=nn.Module)
LENGTH = 128
"""Tokens for which a checkpoint tells the FLOPs of the model that it was cut from."""


@torch.inference_mode(False)
def trim(model: Model, plan: Plan) -> Model:
    """A copy of `model` without what `plan` removes. Its outputs are those of the masked model.

    Save it with `save_pretrained`. With attentrim imported, `from_pretrained` loads it again. A trimmed model can be
    trimmed again, with a plan made for the trimmed model.
    """
    plan = _fitted(model, plan)
    trimmed = _copy(model)
    operate(trimmed, plan)
    before = stored_plan(trimmed)
    with_plan(trimmed, before.then(plan) if before else plan, full_size(trimmed) if before else _size(model))
    return trimmed


@torch.inference_mode(False)
def portable(model: Model, plan: Plan) -> Model:
    """A copy of `model` in stock classes with the outputs of the trimmed model. It loads without attentrim.

    It is as small as stock classes allow: removed layers are gone, all feed-forward blocks have the width of the
    widest one, and other removed parts stay as zeros in the weights (`unshrunk` lists them).
    """
    if stored_plan(unwrap(model)):
        raise PlanError("This model is trimmed already. Make a portable model from the full one.")
    plan = _fitted(model, plan)
    for kind in kinds():
        kind.refuse_portable(unwrap(model), plan.removed_of(kind.name))
    stock = _copy(model)
    with torch.no_grad():
        rest = _whole_places_first(stock, plan)
        for kind in kinds():
            if rest.removed_of(kind.name):
                kind.make_portable(stock, rest.removed_of(kind.name))
    return stock


def unshrunk(model: Any, plan: Plan) -> list[str]:
    """What a portable model keeps though it does nothing, in words."""
    shape = skeleton(unwrap(model))
    rest = _whole_places_first(shape, plan.fitted(model))
    found = [kind.unshrunk(shape, rest.removed_of(kind.name)) for kind in kinds() if rest.removed_of(kind.name)]
    return [text for text in found if text]


def _whole_places_first(model: Any, plan: Plan) -> Plan:
    """Remove what takes other places with it; how wide the rest must be depends on what is left. The plan for that."""
    done = [kind for kind in kinds() if kind.renumbers and plan.removed_of(kind.name)]
    for kind in done:
        kind.make_portable(model, plan.removed_of(kind.name))
    return plan.remainder([kind.name for kind in done])


def operate(model: nn.Module, plan: Plan) -> None:
    """Trim `model` in place. Weights may be on any device, the meta device included."""
    with torch.no_grad():
        for kind in kinds():
            if plan.removed_of(kind.name):
                kind.remove(model, plan.removed_of(kind.name))
    freeze_unused(model)


def freeze_unused(model: nn.Module) -> None:
    """Parameters that nothing reads any more get no gradient, and must not be waited for by data parallelism."""
    for kind in kinds():
        kind.freeze(model)


def _fitted(model: Any, plan: Plan) -> Plan:
    """The plan for just this model; raises if the model cannot be operated on."""
    if not isinstance(plan, Plan):
        raise PlanError(f"A plan is needed (Plan.of or Plan.load). Got {type(plan).__name__} instead.")
    inner = unwrap(model)
    plan = plan.fitted(inner)
    if any(hasattr(module, "base_layer") or hasattr(module, "modules_to_save") for module in inner.modules()):
        raise UnsupportedModelError("This model carries adapters: merge them first (merge_and_unload).")
    for places in places_of(inner).values():
        for place in places:
            for module in getattr(place, "projections", ()):
                if not is_projection(module):
                    raise UnsupportedModelError(
                        f"{place.name} has a {type(module).__name__} where a Linear is expected: {_unpacked(module)}."
                    )
    if any(parameter.is_meta for parameter in inner.parameters()):
        raise UnsupportedModelError("Some weights are offloaded: load the model without offloading to trim it.")
    return plan


def _size(model: Any) -> dict[str, int]:
    """What a checkpoint tells of the model that it was cut from."""
    inner = shape_of(unwrap(model))
    length = min(LENGTH, most_tokens(inner))
    found = {"parameters": sum(parameter.numel() for parameter in inner.parameters())}
    with suppress(RuntimeError, ValueError):  # heads that need more than example inputs can give
        found |= {"flops": flops(inner, length=length), "length": length}
    return found


def _unpacked(module: nn.Module) -> str:
    """How to come by a model with plain weights."""
    if type(module).__name__.startswith("Gguf"):
        return "load it with quantization_config=GgufConfig(dequantize=True)"
    return "trim it before you quantise it"


def _copy(model: Model) -> Model:
    copied = duplicate(unwrap(model), Tensor.clone)
    forget_gguf(copied)
    return copied  # type: ignore[no-any-return]
