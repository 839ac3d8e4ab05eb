"""When which speed is reached: a part of the steps for each, slowest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WAIT_SHARE = 0.05
"""Of the steps for each speed: before the first unit goes, to get to know all of them."""


@dataclass(frozen=True)
class Stage:
    """The steps that lead to one speed."""

    speedup: float
    start: int
    ramp_start: int
    ramp_end: int
    """From this step on the set is fixed; the weights go on learning."""
    end: int

    def progress(self, step: int) -> float:
        """How much of the way to the speed is done: fast at first, then ever slower."""
        share = (step - self.ramp_start) / max(1, self.ramp_end - self.ramp_start)
        return 1 - (1 - min(max(share, 0.0), 1.0)) ** 3


def stages_of(speedups: Sequence[float], first: int, steps: int, ramp_share: float) -> list[Stage]:
    """Stages of equal length over the steps from `first` on."""
    bounds = [first + round((steps - first) * number / len(speedups)) for number in range(len(speedups) + 1)]
    found = []
    for speedup, start, end in zip(speedups, bounds, bounds[1:], strict=False):
        ramp_start = start + round(WAIT_SHARE * (end - start))
        ramp_end = min(end - 1, start + round(ramp_share * (end - start)))
        found.append(Stage(speedup, start, min(ramp_start, ramp_end), max(start, ramp_end), end))
    return found
