"""Random at work."""

from __future__ import annotations

import torch
from torch import Tensor

from ..scored import ScoredGates


class RandomSession(ScoredGates):
    def choose(self, count: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(self.count, generator=generator)[:count].to(self.device)
