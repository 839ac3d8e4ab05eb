"""DropHead at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..regulariser import RegulariserSession

if TYPE_CHECKING:
    from . import DropHead


class DropHeadSession(RegulariserSession):
    method: DropHead

    @property
    def chance(self) -> float:
        """The probability of dropping a head now."""
        if self.method.schedule == "constant":
            return self.method.p
        self.require_steps()
        return self.method.p * abs(1 - 2 * self.progress)

    def draw(self) -> None:
        chance = self.chance
        if not chance:
            return
        for site in self.sites:
            kept = (torch.rand(site.groups, device=self.device) >= chance).float()
            # what is kept stands in for all; where nothing is, the site adds its bias alone
            self.control.set("heads", site.index, kept * (site.groups / kept.sum().clamp_min(1.0)))

    def metrics(self) -> dict[str, float]:
        return {"drop_chance": self.chance}
