"""L0: hard-concrete gates and a penalty on the expected number of open ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import AT_LEAST_ONE, NOT_NEGATIVE, option
from ..base import METHODS, DataNeeds, LearnedMethod

__all__ = ["L0"]


@dataclass(kw_only=True)
class L0(LearnedMethod):
    """Sample relaxed gates while fine-tuning, with a penalty on the expected number of open gates."""

    name: ClassVar[str] = "l0"
    summary: ClassVar[str] = "sampled hard-concrete gates with a penalty on the expected number of open ones"
    paper: ClassVar[str] = (
        "Voita et al. 2019, Analyzing Multi-Head Self-Attention; Louizos et al. 2018, L0 regularization"
    )

    penalty: float | None = option(
        None,
        "what each gate that is expected to be open adds to the loss (default: 1e-3 with a target, 3e-4 without)",
        NOT_NEGATIVE,
    )
    gate_lr: float = option(0.05, "learning rate of the gates' own optimiser (Adam)", NOT_NEGATIVE)
    initial_logit: float = option(2.5, "initial value of the gate parameters; 2.5 is open with probability 0.71")
    calibration_samples: int = option(
        512, "training examples on which the gap between sampled and binary gates is measured", AT_LEAST_ONE
    )

    @property
    def pressure(self) -> float:
        """Adam gives a gate whose gradient is tiny the same pace as any other: a target needs a penalty above that
        noise, and the common shift takes back what is too much; a free run would lose all its heads to it."""
        if self.penalty is not None:
            return self.penalty
        return 3e-4 if self.target_sparsity is None else 1e-3

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(calibration=self.calibration_samples)

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import L0Session

        return L0Session(self, model, **surroundings)


METHODS.register(L0.name, L0)
