"""LayerDrop: whole layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import SHARE, option
from ..base import METHODS, Regulariser

__all__ = ["LayerDrop"]


@dataclass(kw_only=True)
class LayerDrop(Regulariser):
    """Skip whole layers at random while training."""

    name: ClassVar[str] = "layerdrop"
    summary: ClassVar[str] = "skips whole layers at random while training"
    paper: ClassVar[str] = "Fan et al. 2020, Reducing Transformer Depth on Demand with Structured Dropout"

    p: float = option(0.2, "probability of skipping each layer, drawn once per forward", SHARE)

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import LayerDropSession

        return LayerDropSession(self, model, **surroundings)


METHODS.register(LayerDrop.name, LayerDrop)
