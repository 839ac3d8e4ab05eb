"""What a model costs: units, parameters and bytes counted exactly, FLOPs by running its skeleton."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .duplicate import skeleton
from .errors import PlanError
from .flops import flops, most_tokens
from .kv_cache import cache_bytes_per_token
from .plan import Plan
from .sharding import shape_of
from .sites import unwrap
from .structures import STRUCTURES, Structure, kinds
from .surgery import operate

__all__ = ["Cost", "cost", "flops", "most_speedup", "most_tokens", "plan_cost", "skeleton"]


@dataclass(frozen=True)
class Cost:
    """Sizes of one model. `flops` are those of one forward pass, matrix products only."""

    units: Mapping[str, int]
    """By kind of structure, how many there are."""
    parameters: int
    bytes: int
    flops: int
    length: int
    """Tokens per sequence that the FLOPs were counted for: as asked, or as many as the model has positions for."""
    cache_bytes_per_token: int | None = None
    """Bytes that a token adds to the key/value cache, within the window of windowed sites; None without a cache."""

    def as_dict(self) -> dict[str, int]:
        """All counts by name: units by kind, parameters, bytes, FLOPs, and of models that generate the cache."""
        cache = self.cache_bytes_per_token
        return {
            **self.units,
            "parameters": self.parameters,
            "bytes": self.bytes,
            "flops": self.flops,
            **({} if cache is None else {"cache_bytes_per_token": cache}),
        }


def cost(model: Any, batch: int = 1, length: int = 128) -> Cost:
    """The cost of a model as it is."""
    model = shape_of(unwrap(model))
    parameters = list(model.parameters())
    length = min(length, most_tokens(model))
    counts = {kind.name: kind.count([place.shape for place in kind.find(model)]) for kind in kinds()}
    return Cost(
        units={name: count for name, count in counts.items() if count is not None},
        parameters=sum(parameter.numel() for parameter in parameters),
        bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        flops=flops(model, batch, length),
        length=length,
        cache_bytes_per_token=cache_bytes_per_token(model),
    )


def plan_cost(model: Any, plan: Plan, batch: int = 1, length: int = 128) -> tuple[Cost, Cost]:
    """The costs of `model` before and after `plan`, without using its weights."""
    inner = shape_of(unwrap(model))
    trimmed = skeleton(inner)
    operate(trimmed, plan.fitted(inner))
    return cost(inner, batch, length), cost(trimmed, batch, length)


def most_speedup(model: Any, names: Iterable[str], length: int = 128) -> float:
    """The theoretical speed-up (FLOPs) of `model` without any unit of these kinds: no plan for them gives more.

    Infinite where nothing else in the model multiplies matrices.
    """
    inner = unwrap(model)
    plan = Plan.of(inner, **{name: _all_units(inner, name) for name in names})
    before, after = plan_cost(inner, plan, length=length)
    return before.flops / after.flops if after.flops else math.inf


def _all_units(model: Any, name: str) -> Any:
    """All units of a kind, as plans name them."""
    kind = STRUCTURES[name]
    if kind.within:
        return {place.index: range(kind.units(place.shape)) for place in kind.find(model)}
    return [place.index for place in kind.find(model) if _can_go(kind, place)]


def _can_go(kind: Structure, place: Any) -> bool:
    try:
        kind.check(place.index, place.shape, ())
    except PlanError:
        return False
    return True
