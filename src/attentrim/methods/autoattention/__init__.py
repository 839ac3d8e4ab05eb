"""AutoAttention: one binary gate per head, learned with the weights through a straight-through estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import MethodError
from ...options import AT_LEAST_ONE, NOT_NEGATIVE, SHARE, one_of, option
from ..base import METHODS, DataNeeds, LearnedMethod

__all__ = ["AutoAttention"]

BACKWARDS = ("softplus", "sigmoid", "linear", "relu", "clipped_relu")
PRESETS = ("one_shot", "paper")


@dataclass(kw_only=True)
class AutoAttention(LearnedMethod):
    """Learn which heads to close while fine-tuning: by the penalty alone, to a target, or within a budget."""

    name: ClassVar[str] = "autoattention"
    summary: ClassVar[str] = "one binary gate per head, trained with the weights through a straight-through estimator"
    paper: ClassVar[str] = "AutoAttention: Automatic Attention Head Selection Through Differentiable Pruning"

    preset: str = option(
        "one_shot", "one_shot: gates from the first step; paper: half of the steps dense, then gates", one_of(PRESETS)
    )
    backward: str = option(
        "softplus", f"the coarse gradient of the step function: {', '.join(BACKWARDS)}", one_of(BACKWARDS)
    )
    start_spread: float = option(
        0.3,
        "standard deviation of the gate parameters at the start, around 1; with 0 all gates start equal and differ "
        "only by what they learn",
        NOT_NEGATIVE,
    )
    max_drop: float | None = option(
        None,
        "budget: remove as many heads as cost at most this much of the dense model's metric (0.01 is one point), "
        "judged on held-out training data",
        SHARE,
    )
    holdout_share: float = option(0.1, "budget: share of the training data held out to judge on", SHARE)
    checks: int = option(16, "budget: how many times the metric is checked", AT_LEAST_ONE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_drop is not None and self.target_sparsity is not None:
            raise MethodError("AutoAttention takes target_sparsity or max_drop, not both.")
        if self.max_drop is not None and not self.dense:
            raise MethodError(
                "max_drop is measured against the dense model: leave dense_share some steps to train it."
            )

    @property
    def dense(self) -> float:
        if self.dense_share is not None:
            return self.dense_share
        return 0.5 if self.preset == "paper" or self.max_drop is not None else 0.0

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(holdout=0.0 if self.max_drop is None else self.holdout_share)

    @property
    def reason(self) -> str:
        if self.max_drop is None:
            return super().reason
        return (
            f"Kept the state with the fewest open gates within {self.max_drop:g} of the dense model's "
            "metric on held-out training data."
        )

    @property
    def training_defaults(self) -> dict[str, Any]:
        return {**super().training_defaults, "num_train_epochs": 8 if self.dense else 4}

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import AutoAttentionSession

        return AutoAttentionSession(self, model, **surroundings)


METHODS.register(AutoAttention.name, AutoAttention)
