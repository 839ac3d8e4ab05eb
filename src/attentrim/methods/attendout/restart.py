"""Whose weights attacker and defender both continue with after a window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from . import AttendOut

DECAY = 0.9
"""Of the running mean of squared reward sums."""


class Restart:
    """Keeps the attacker or the defender, by the sum of the rewards of a window.

    Args:
        choices: Random numbers that are the same in all processes.
    """

    def __init__(self, method: AttendOut, choices: torch.Generator) -> None:
        self.method, self.choices = method, choices
        self.mean_square: float | None = None
        """Running mean of the squared sums, the last one included."""
        self.numbers: dict[str, float] = {}
        """For the log: temperature and chance of the last sampled restart."""

    def attacker_is_kept(self, total: float) -> bool:
        """Whether both continue with the attacker after a window whose rewards sum to `total`."""
        drawn = float(torch.rand((), generator=self.choices))
        if self.method.restart == "attacker":
            return True
        if self.method.restart == "better":  # a tie, of which there are many by correctness, is decided by a coin
            return total > 0 or (total == 0 and drawn < 0.5)
        square = total * total
        before = square if self.mean_square is None else self.mean_square
        self.mean_square = DECAY * before + (1 - DECAY) * square
        chance = self._chance(total)
        self.numbers = {"restart_temperature": self.temperature, "restart_chance": chance}
        return drawn < chance

    @property
    def temperature(self) -> float:
        """What the sum of rewards is divided by."""
        if self.method.restart_scale == "fixed":
            return self.method.restart_temperature
        return self.method.restart_temperature * math.sqrt(self.mean_square or 0.0)

    def _chance(self, total: float) -> float:
        """sigmoid(total / temperature); a coin where no window has had a reward yet."""
        temperature = self.temperature
        return float(torch.sigmoid(torch.tensor(total / temperature))) if temperature else 0.5

    def state_dict(self) -> dict[str, Any]:
        return {"mean_square": self.mean_square}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mean_square = state["mean_square"]
