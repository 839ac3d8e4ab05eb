"""Fisher: a model as fast as requested, by removing what matters least to the loss for the time that it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...bench.settings import BACKENDS, DEVICES, DTYPES
from ...distillation import Distillation
from ...errors import MethodError
from ...options import AT_LEAST_ONE, SHARE, SHARE_OR_ALL, one_of, option
from ..base import METHODS, DataNeeds, GateMethod

__all__ = ["Fisher"]

COSTS = ("time", "flops")
LADDER = "1.5,2,2.5,3,4"
"""Speeds that are tried where only a drop of the metric is given."""


@dataclass(kw_only=True)
class Fisher(GateMethod):
    """Remove heads, neurons and layers until the model is as fast as requested, with or without training."""

    name: ClassVar[str] = "fisher"
    summary: ClassVar[str] = (
        "as fast as you ask: removes heads, neurons and layers with the least Fisher information per ms"
    )
    paper: ClassVar[str] = (
        "ours; after Kwon et al. 2022, A Fast Post-Training Pruning Framework for Transformers, and others"
    )
    searches: ClassVar[bool] = True

    speedup: str | None = option(
        None,
        "how many times faster to make the model; several, such as 1.5,2,3, give one model each from one training "
        f"(fisher's default: 2; with max_drop: {LADDER})",
    )
    max_drop: float | None = option(
        None,
        "keep the fastest model within this drop of the metric (0.01 is one point; of a perplexity, one percent), "
        "judged on held-out training data",
        SHARE,
    )
    prune: str = option(
        "heads,neurons,layers", "what may be removed, comma-separated: heads, neurons, layers, uniform"
    )
    cost: str = option("time", "what to save: measured time, or flops", one_of(COSTS))
    speed_batch: int | None = option(
        None, "batch size to optimise for (default: 8 on a CPU, 32 on a GPU)", AT_LEAST_ONE
    )
    speed_length: int | None = option(None, "sequence length to optimise for, in tokens (default: 128)", AT_LEAST_ONE)
    speed_dtype: str | None = option(None, "number format to optimise for (default: float32)", one_of(DTYPES))
    speed_backend: str | None = option(None, "backend to optimise for (default: sdpa)", one_of(BACKENDS))
    speed_device: str | None = option(
        None, "device to optimise for (default: cuda if there is one, otherwise cpu)", one_of(DEVICES)
    )
    speed_table: str | None = option(
        None, "a latency table from attentrim bench --latency_table (default: measured on this machine)"
    )
    speed_elsewhere: bool = option(False, "the latency table is from another machine, so do not time the result here")
    width_step: int | None = option(
        None, "neurons are kept in multiples of this (default: 64 on a GPU, 32 on a CPU)", AT_LEAST_ONE
    )
    ramp_share: float = option(0.5, "share of each speed's steps after which that speed is reached", SHARE_OR_ALL)
    decay: float = option(0.98, "decay per step of the moving average of squared gradients", SHARE)
    distill: bool = option(True, "under attentrim's Trainer, distil from the dense model by default")
    holdout_share: float = option(0.1, "max_drop: share of the training data held out to judge on", SHARE)
    calibration_samples: int = option(256, "without training: number of calibration examples", AT_LEAST_ONE)
    use_labels: bool = option(
        True, "without training: use labels; if false, labels are drawn from the model's own predictions"
    )
    rearrange: bool = option(True, "without training: swap removed units for kept ones until their errors cancel best")

    def __post_init__(self) -> None:
        if isinstance(self.speedup, int | float) and not isinstance(self.speedup, bool):
            self.speedup = f"{self.speedup:g}"
        elif isinstance(self.speedup, list | tuple):
            self.speedup = ",".join(value if isinstance(value, str) else f"{value:g}" for value in self.speedup)
        super().__post_init__()
        asked = self.speedups
        if not asked or not all(1 < value < math.inf for value in asked) or sorted(set(asked)) != asked:
            raise MethodError(
                "The 'speedup' parameter of Fisher must be a number above 1, or several in rising order such as "
                f"1.5,2,3. Got {self.speedup} instead."
            )
        if self.cost == "flops" and self.speed_table is not None:
            raise MethodError("A latency table is of time: leave speed_table out, or cost at time.")
        if self.speed_elsewhere and self.speed_table is None:
            raise MethodError("speed_elsewhere plans for the machine of a latency table: set speed_table too.")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise MethodError(f"prune names kinds of structure, each once, such as heads,neurons. Got {self.prune!r}.")

    @property
    def speedups(self) -> list[float]:
        """What is asked for, slowest first."""
        usual = "2" if self.max_drop is None else LADDER
        try:
            return [float(part) for part in (usual if self.speedup is None else self.speedup).split(",")]
        except ValueError:
            return []

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.prune.split(",") if part.strip())

    @property
    def dense(self) -> float:
        """A third of the steps: what they leave is the teacher."""
        return 1 / 3 if self.dense_share is None else self.dense_share

    @property
    def restarts(self) -> list[float]:
        """The learning rate starts again for each speed."""
        count, rest = len(self.speedups), 1 - self.dense
        return [self.dense + rest * number / count for number in range(count)]

    @property
    def default_distillation(self) -> Distillation | None:
        return Distillation(logits=1.0, hidden=1.0, label_weight=0.5) if self.distill else None

    def starting_from(self, trained: bool) -> Fisher:
        return replace(self, dense_share=0.0) if trained and self.dense_share is None else self

    @property
    def whole_weights(self) -> str:
        return "" if self.max_drop is None else "max_drop goes back to the weights of the best model"

    @property
    def no_adapters(self) -> str:
        return "it trims copies of the model while it trains, to see how fast they are"

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(
            calibration=self.calibration_samples, holdout=0.0 if self.max_drop is None else self.holdout_share
        )

    @property
    def training_defaults(self) -> dict[str, Any]:
        epochs = 8 * max(1, len(self.speedups)) if not self.dense else 12 * max(1, len(self.speedups))
        return {**super().training_defaults, "num_train_epochs": epochs, "learning_rate": 5e-5}

    @property
    def reason(self) -> str:
        what = "measured time" if self.cost == "time" else "FLOPs"
        return (
            "Removed what matters least to the loss for its cost: the squared gradient of the loss in a unit's gate "
            f"(its Fisher information), weighed against {what}, until the model was as fast as requested."
        )

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import FisherSession

        return FisherSession(self, model, **surroundings)


METHODS.register(Fisher.name, Fisher)
