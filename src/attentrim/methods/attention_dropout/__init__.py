"""Attention dropout: single (query, key) pairs, before or after the softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import SHARE, one_of, option
from ..base import METHODS, Regulariser

__all__ = ["AttentionDropout"]


@dataclass(kw_only=True)
class AttentionDropout(Regulariser):
    """Drop attention of single (query, key) pairs while training, on top of the model's own dropout."""

    name: ClassVar[str] = "attention-dropout"
    summary: ClassVar[str] = "Bernoulli dropout of (query, key) pairs, on attention weights or on scores"
    paper: ClassVar[str] = "the 'Vanilla' of AttendOut, eq. 2 and 3"

    p: float = option(0.1, "probability of dropping each pair", SHARE)
    on: str = option("weights", "weights: after the softmax; scores: before it", one_of(("weights", "scores")))
    rescale: bool = option(False, "weights only: divide what is kept by 1 - p")

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import AttentionDropoutSession

        return AttentionDropoutSession(self, model, **surroundings)


METHODS.register(AttentionDropout.name, AttentionDropout)
