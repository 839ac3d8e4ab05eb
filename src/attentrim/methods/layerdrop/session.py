"""LayerDrop at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..regulariser import RegulariserSession

if TYPE_CHECKING:
    from . import LayerDrop


class LayerDropSession(RegulariserSession):
    method: LayerDrop

    def draw(self) -> None:
        if not self.method.p:
            return
        layers = self.control.places["layers"]
        skipped = (torch.rand(len(layers), device=self.device) < self.method.p).float()
        for layer, skip in zip(layers, skipped, strict=True):
            self.control.set("layers", layer.index, skip)
