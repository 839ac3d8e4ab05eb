"""FewerLayers: a model with some of its layers, the rest of them removed at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import MethodError
from ...options import ABOVE_ONE, AT_LEAST_ONE, SHARE, one_of, option
from ..base import METHODS, Method

__all__ = ["FewerLayers"]

KEPT_IN_WORDS = {"every-second": "spread evenly from the first to the last", "lowest": "the lowest ones"}


@dataclass(kw_only=True)
class FewerLayers(Method):
    """Remove whole layers by position alone, then fine-tune without them."""

    name: ClassVar[str] = "fewer-layers"
    summary: ClassVar[str] = "whole layers removed at once, all upper ones or every second: a baseline for speed"
    paper: ClassVar[str] = "Sanh et al. 2019, DistilBERT; Sajjad et al. 2023, On the Effect of Dropping Layers"
    searches: ClassVar[bool] = True

    count: int | None = option(None, "layers to keep in each stack (default: half, rounded up)", AT_LEAST_ONE)
    speedup: float | None = option(None, "instead of count: keep 1/speedup of the layers, rounded", ABOVE_ONE)
    keep: str = option(
        "lowest",
        "which layers stay: lowest, or every-second (spread evenly from the first to the last)",
        one_of(tuple(KEPT_IN_WORDS)),
    )
    dense_share: float = option(
        0.0, "share of the steps for plain fine-tuning first; the learning rate schedule then restarts", SHARE
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count is not None and self.speedup is not None:
            raise MethodError("FewerLayers takes count or speedup, not both.")

    @property
    def dense(self) -> float:
        return self.dense_share

    @property
    def reason(self) -> str:
        amount = "half of the layers" if self.count is None else f"{self.count} layers"
        if self.speedup is not None:
            amount = f"one of {self.speedup:g} layers"
        return f"Kept {amount}: {KEPT_IN_WORDS[self.keep]}. Only their position counts."

    def kept(self, layers: int) -> list[int]:
        """The places in a stack of so many layers that stay."""
        count = (layers + 1) // 2 if self.count is None else self.count
        if self.speedup is not None:
            count = max(1, round(layers / self.speedup))
        if count > layers:
            raise MethodError(f"The 'count' parameter of FewerLayers is {count}; this model has {layers} layers.")
        if self.keep == "lowest" or count == 1:
            return list(range(count))
        last, steps = layers - 1, count - 1
        return [(2 * place * last + steps) // (2 * steps) for place in range(count)]  # rounded, halves up

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import FewerLayersSession

        return FewerLayersSession(self, model, **surroundings)


METHODS.register(FewerLayers.name, FewerLayers)
