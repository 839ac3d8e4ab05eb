"""SMP: a small network looks at attention maps and says which heads a site needs. No labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...options import AT_LEAST_ONE, POSITIVE, SHARE, Rule, option
from ..base import METHODS, DataNeeds, ScoringMethod

__all__ = ["SMP"]

POWER_OF_TWO = Rule("a power of 2 from 8 to 1024", lambda value: value in [2**power for power in range(3, 11)])


@dataclass(kw_only=True)
class SMP(ScoringMethod):
    """Train a network that scores heads from their attention maps, close the lowest heads of each site, and fine-tune
    without them."""

    name: ClassVar[str] = "smp"
    summary: ClassVar[str] = "heads scored from attention maps by a small network that learns without labels"
    chosen_by: ClassVar[str] = (
        "whose attention maps were scored lowest in their site, the same number in each site as far as possible"
    )
    paper: ClassVar[str] = "Zhang et al. 2021, Know What You Don't Need: Single-Shot Meta-Pruning for Attention Heads"

    target_sparsity: float = option(0.5, "remove exactly this share of all heads", SHARE)
    search_steps: int = option(300, "steps to train the scorer for (the paper: 6000)", AT_LEAST_ONE)
    search_lr: float = option(2e-2, "learning rate of the scorer", POSITIVE)
    map_length: int = option(32, "attention maps are cut or padded to this length (the paper: 128)", POWER_OF_TWO)
    base_width: int = option(4, "channels of the scorer's first convolution", AT_LEAST_ONE)
    temperature: float = option(0.5, "temperature of the repeated Gumbel-softmax that draws heads", POSITIVE)
    calibration_samples: int = option(4096, "number of training examples that the scorer learns from", AT_LEAST_ONE)

    @property
    def whole_weights(self) -> str:
        return "it runs the model without its task head"

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(calibration=self.calibration_samples)

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import SMPSession

        return SMPSession(self, model, **surroundings)


METHODS.register(SMP.name, SMP)
