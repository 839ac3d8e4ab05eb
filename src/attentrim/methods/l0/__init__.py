"""L0: hard-concrete gates and a penalty on the expected number of open ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import AT_LEAST_ONE, NOT_NEGATIVE, option
from ..base import METHODS, LearnedMethod

__all__ = ["L0"]


@dataclass(kw_only=True)
class L0(LearnedMethod):
    """Sample relaxed gates while fine-tuning, and penalise how many are expected to be open."""

    name: ClassVar[str] = "l0"
    summary: ClassVar[str] = "sampled hard-concrete gates with a penalty on the expected number of open ones"
    paper: ClassVar[str] = (
        "Voita et al. 2019, Analyzing Multi-Head Self-Attention; Louizos et al. 2018, L0 regularization"
    )

    penalty: float = option(3e-4, "what each gate that is expected to be open adds to the loss", NOT_NEGATIVE)
    gate_lr: float = option(0.05, "learning rate of the gates' own optimiser (Adam)", NOT_NEGATIVE)
    initial_logit: float = option(2.5, "where the gates' parameters start; 2.5 is open with a chance of 0.71")
    calibration_samples: int = option(
        512, "training examples on which the gap between sampled and binary gates is measured", AT_LEAST_ONE
    )

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import L0Session

        return L0Session(self, model, **surroundings)


METHODS.register(L0.name, L0)
