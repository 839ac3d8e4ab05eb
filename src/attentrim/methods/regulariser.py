"""Dropping attention at random while training: what the regularisers have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .base import Regulariser
from .session import Session


class RegulariserSession(Session):
    """Draws again before each training forward, from torch's random numbers, as dropout does; evaluation is plain."""

    method: Regulariser

    def __init__(self, method: Regulariser, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.sites = [site for site in self.control.sites if site.heads]

    def before_forward(self, training: bool) -> None:
        self.control.clear()
        if training:
            self.draw()

    def draw(self) -> None:
        """Set what this forward drops, if anything."""
        raise NotImplementedError

    @property
    def progress(self) -> float:
        """How far training has come, from 0 to 1."""
        return min(self.steps_done / self.steps, 1.0) if self.steps else 0.0

    def finish(self) -> None:
        self.control.clear()


def bernoulli(keep: float) -> Callable[[Tensor], Tensor]:
    """Makes masks in which each (query, key) pair of each head is kept with this probability."""

    def draw(allowed: Tensor) -> Tensor:
        return torch.rand(allowed.shape, device=allowed.device) < keep

    return draw
