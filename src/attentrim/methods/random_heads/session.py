"""Random at work."""

from __future__ import annotations

import torch
from torch import Tensor

from ..scored import ScoredGates


class RandomSession(ScoredGates):
    def choose(self, amount: float) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return self.first(torch.randperm(self.count, generator=generator).to(self.device), amount)
