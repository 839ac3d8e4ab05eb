"""Scheduled dropout: score dropout whose rate changes over training, site by site."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import MethodError
from ...guarded import parse_json
from ...options import option
from ..base import METHODS, Regulariser
from .fitting import fitted_curves

__all__ = ["ScheduledDropout"]

Curve = list[tuple[float, float]]
"""(progress from 0 to 1, drop probability) in rising order: linear in between."""


@dataclass(kw_only=True)
class ScheduledDropout(Regulariser):
    """Bernoulli dropout of attention scores by a piecewise linear schedule for each site."""

    name: ClassVar[str] = "scheduled-dropout"
    summary: ClassVar[str] = "Bernoulli dropout of attention scores, piecewise linear over training, site by site"
    paper: ClassVar[str] = "the 'Scheduler' of AttendOut, Table 4"

    curves: str = option(
        "[[0, 0.6], [1, 0]]",
        "JSON: one curve of [progress, drop probability] points for all sites, or a list of curves, one per site",
    )

    fitted_to: str | None = option(
        None, "the directory of an AttendOut run: curves are fitted to the drop rates in its history"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fitted_to is not None:
            self.curves, self.fitted_to = json.dumps(fitted_curves(self.fitted_to)), None
        self.parsed()

    def parsed(self) -> list[Curve]:
        """The curves: one for all sites, or one per site."""
        try:
            data = parse_json(self.curves)
            several = data if isinstance(data[0][0], list) else [data]
            curves = [[(float(progress), float(chance)) for progress, chance in curve] for curve in several]
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise MethodError(
                "The 'curves' parameter of ScheduledDropout must be JSON such as [[0, 0.6], [1, 0.2]], or a list of "
                f"such curves. Got {self.curves!r} instead."
            ) from error
        for curve in curves:
            places = [progress for progress, _ in curve]
            chances = [chance for _, chance in curve]
            rising = places == sorted(set(places)) and places[0] >= 0 and places[-1] <= 1
            if not rising or not all(0 <= chance < 1 for chance in chances):
                raise MethodError(
                    "A curve of ScheduledDropout has progress rising within [0, 1] and probabilities in [0, 1). "
                    f"Got {[list(point) for point in curve]} instead."
                )
        return curves

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import ScheduledDropoutSession

        return ScheduledDropoutSession(self, model, **surroundings)


METHODS.register(ScheduledDropout.name, ScheduledDropout)
