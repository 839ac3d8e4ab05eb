"""HISP: heads ranked by how much the loss would move with their gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import AT_LEAST_ONE, option
from ..base import METHODS, DataNeeds, PruneMethod, ScoringMethod

__all__ = ["HISP"]


@dataclass(kw_only=True)
class HISP(ScoringMethod, PruneMethod):
    """Rank heads by the gradient of the loss in their gates, close the lowest, and fine-tune without them."""

    name: ClassVar[str] = "hisp"
    summary: ClassVar[str] = "heads ranked by the gradient of the loss in their gates, in one shot or in rounds"
    chosen_by: ClassVar[str] = (
        "whose gates move the loss least: the scores are gradients, divided by their site's norm"
    )
    paper: ClassVar[str] = "Michel et al. 2019, Are Sixteen Heads Really Better than One?"

    rounds: int = option(1, "1: one shot; more: close a part, fine-tune, rank again", AT_LEAST_ONE)
    calibration_samples: int = option(1024, "number of training examples to rank by", AT_LEAST_ONE)

    @property
    def dense(self) -> float:
        """Gradients say something once the model has learned its task."""
        return 0.5 if self.dense_share is None else self.dense_share

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(calibration=self.calibration_samples)

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import HISPSession

        return HISPSession(self, model, **surroundings)


METHODS.register(HISP.name, HISP)
