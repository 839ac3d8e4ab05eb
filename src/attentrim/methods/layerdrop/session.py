"""LayerDrop at work."""

from __future__ import annotations

import torch

from ..regulariser import RegulariserSession
from . import LayerDrop


class LayerDropSession(RegulariserSession):
    method: LayerDrop

    def draw(self) -> None:
        if not self.method.p:
            return
        skipped = (torch.rand(len(self.sites), device=self.device) < self.method.p).float()
        for site, skip in zip(self.sites, skipped, strict=True):
            self.control.set_skip(site.index, skip)
