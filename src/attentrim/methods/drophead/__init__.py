"""DropHead: whole heads, by a V-shaped schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import SHARE, one_of, option
from ..base import METHODS, Regulariser

__all__ = ["DropHead"]


@dataclass(kw_only=True)
class DropHead(Regulariser):
    """Drop whole heads at random while training and scale up those that are kept."""

    name: ClassVar[str] = "drophead"
    summary: ClassVar[str] = "drops whole heads at random by a V-shaped schedule, and rescales the others"
    paper: ClassVar[str] = "Zhou et al. 2020, Scheduled DropHead: A Regularization Method for Transformer Models"

    p: float = option(0.2, "highest probability of dropping each head", SHARE)
    schedule: str = option(
        "v",
        "v: from p down to 0 in the middle of training and up again; constant: p throughout",
        one_of(("v", "constant")),
    )

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import DropHeadSession

        return DropHeadSession(self, model, **surroundings)


METHODS.register(DropHead.name, DropHead)
