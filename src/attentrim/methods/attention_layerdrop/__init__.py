"""Attention LayerDrop: the attention of whole sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import SHARE, option
from ..base import METHODS, Regulariser

__all__ = ["AttentionLayerDrop"]


@dataclass(kw_only=True)
class AttentionLayerDrop(Regulariser):
    """Make the attention of whole sites uniform at random while training."""

    name: ClassVar[str] = "attention-layerdrop"
    summary: ClassVar[str] = "makes the attention of whole sites uniform at random while training"
    paper: ClassVar[str] = "the 'Attn.LayerDrop' of AttendOut, eq. 4"

    p: float = option(0.2, "probability of making each site uniform, drawn once per forward", SHARE)

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import AttentionLayerDropSession

        return AttentionLayerDropSession(self, model, **surroundings)


METHODS.register(AttentionLayerDrop.name, AttentionLayerDrop)
