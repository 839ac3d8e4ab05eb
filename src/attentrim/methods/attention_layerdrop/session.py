"""Attention LayerDrop at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..regulariser import RegulariserSession

if TYPE_CHECKING:
    from . import AttentionLayerDrop


class AttentionLayerDropSession(RegulariserSession):
    method: AttentionLayerDrop

    def draw(self) -> None:
        if not self.method.p:
            return
        uniform = torch.rand(len(self.sites), device=self.device) < self.method.p
        for site, turned in zip(self.sites, uniform, strict=True):
            self.control.set("uniform", site.index, turned)
