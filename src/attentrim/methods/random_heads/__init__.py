"""Random: heads chosen at random, the baseline that every choice must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..base import METHODS, PruneMethod, ScoringMethod

__all__ = ["RandomHeads"]


@dataclass(kw_only=True)
class RandomHeads(ScoringMethod, PruneMethod):
    """Close heads at random, then fine-tune without them."""

    name: ClassVar[str] = "random-heads"
    summary: ClassVar[str] = "heads chosen at random: the baseline that every choice must beat"
    chosen_by: ClassVar[str] = "that were chosen at random"
    paper: ClassVar[str] = "the 'Random' of AutoAttention, Table 1"

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import RandomSession

        return RandomSession(self, model, **surroundings)


METHODS.register(RandomHeads.name, RandomHeads)
