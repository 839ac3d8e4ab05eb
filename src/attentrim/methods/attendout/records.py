"""The numbers that AttendOut logs and writes into a run's history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .draws import Draw
from .generator import Valid, mean_over

DECAY = 0.9
"""Of the moving averages."""


class Records:
    """Drop rates by site, and the figures of the last dropout step."""

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}
        """The drop probability of each site, as of the last dropout step, or over the calibration data."""
        self.numbers: dict[str, float] = {}
        """For the log."""

    def note_draw(self, draw: Draw) -> None:
        """Drop rates and entropy of the masks of one batch."""
        rates, entropies = rates_and_entropies(draw)
        self.rates.update(zip(draw.logits, rates.tolist(), strict=True))
        self.numbers["drop_rate"] = sum(self.rates.values()) / len(self.rates)
        self.numbers["entropy"] = float(entropies.mean())

    def note_restart(self, total: float, attacker_kept: bool) -> None:
        """The sum of rewards of a window, and moving averages of who won and who was kept."""
        for name, value in (("win_rate", total > 0), ("attacker_kept", attacker_kept)):
            before = self.numbers.get(name)
            self.numbers[name] = float(value) if before is None else DECAY * before + (1 - DECAY) * value
        self.numbers["reward"] = total

    def state_dict(self) -> dict[str, Any]:
        return {"rates": self.rates, "numbers": self.numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rates, self.numbers = state["rates"], state["numbers"]


def rates_and_entropies(draw: Draw) -> tuple[Tensor, Tensor]:
    """Of one forward, by site: the mean drop probability and the mean entropy of a decision, in nats."""
    rates, entropies = [], []
    for index, logits in draw.logits.items():
        logits = logits.detach()
        counted = Valid(draw.round.valid[index]).decided(draw.unit)
        chance = torch.sigmoid(-logits)
        each = nn.functional.softplus(-logits) + logits * chance
        rates.append(mean_over(chance, counted).mean())
        entropies.append(mean_over(each, counted).mean())
    return torch.stack(rates), torch.stack(entropies)
