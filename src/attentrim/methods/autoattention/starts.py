"""Whether the gates that closed are those that started lowest: then chance chose them, and training did not."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

MOSTLY = 0.5
"""From this share of the way between chance and a full match on, the start chose most of the closed gates."""
DEVIATIONS = 3.0
"""How many standard deviations from chance it takes as well: of a few gates, many match by chance."""


@dataclass(frozen=True)
class Overlap:
    """How many of the closed gates are among as many that started lowest."""

    gates: int
    closed: int
    started_lowest: int

    @classmethod
    def of(cls, start: Tensor, closed: Tensor) -> Overlap:
        """Of parameters at the start, [gates], and whether each gate is closed now."""
        count = int(closed.sum())
        lowest = start.argsort(stable=True)[:count]
        return cls(len(start), count, int(closed[lowest].sum()))

    @property
    def by_chance(self) -> float:
        """What a start that has nothing to do with the choice comes to: the mean of a hypergeometric distribution."""
        return self.closed**2 / self.gates

    @property
    def deviation(self) -> float:
        """The standard deviation of that distribution."""
        share = self.closed / self.gates
        return float(self.closed * (1 - share) ** 2 * share * self.gates / max(self.gates - 1, 1)) ** 0.5

    @property
    def agreement(self) -> float:
        """0 as by chance, 1 if all that closed had started lowest."""
        room = self.closed - self.by_chance
        return (self.started_lowest - self.by_chance) / room if room else 0.0

    @property
    def follows_start(self) -> bool:
        beyond = self.started_lowest - self.by_chance
        return self.agreement > MOSTLY and beyond > DEVIATIONS * self.deviation
