"""UniformSites: whole sites lose their attention one after the other while the model trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import MethodError
from ...options import AT_LEAST_ONE, NONE_TO_ALL, SHARE, one_of, option
from ..base import METHODS, DataNeeds
from ..progressive import ORDER_IN_WORDS, RAMP_SHARE, ProgressiveMethod, SitePruning, amount_in_words

__all__ = ["UniformSites"]

ORDERS = ("top", "greedy")


@dataclass(kw_only=True)
class UniformSites(ProgressiveMethod):
    """Make the attention of whole sites uniform, one more site at a time, while the weights adapt."""

    name: ClassVar[str] = "uniform-sites"
    summary: ClassVar[str] = "attention of whole sites made uniform, one site after the other, top first or greedily"
    paper: ClassVar[str] = "ours; uniform sites are those of Not All Attention Is All You Need (first version)"

    count: int | None = option(
        None,
        "make exactly this many sites uniform (default: half of them, or as many as max_drop allows)",
        AT_LEAST_ONE,
    )
    max_drop: float | None = option(
        None, "make as many sites uniform as cost at most this much of the metric on held-out training data", SHARE
    )
    order: str = option(
        "top", "which site goes first: top (nearest to the output) or greedy (costs the metric least)", one_of(ORDERS)
    )
    dense_share: float = option(
        0.0, "share of the steps for plain fine-tuning first; the learning rate schedule then restarts", SHARE
    )
    ramp_share: float = option(
        RAMP_SHARE, "share of the pruning phase after which all chosen sites are uniform; 0: all at once", NONE_TO_ALL
    )
    holdout_share: float = option(0.05, "max_drop, greedy: share of the training data held out to judge on", SHARE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count is not None and self.max_drop is not None:
            raise MethodError("UniformSites takes count or max_drop, not both.")

    @property
    def pruning(self) -> SitePruning:
        return SitePruning(self.count, self.max_drop, self.order == "greedy", self.ramp_share)

    @property
    def first_share(self) -> float:
        return self.dense_share

    @property
    def dense(self) -> float:
        return self.dense_share

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(holdout=self.holdout_share if self.pruning.judged_by_metric else 0.0)

    @property
    def reason(self) -> str:
        return f"Attention made uniform in {amount_in_words(self.pruning)}: {ORDER_IN_WORDS[self.order]}."

    def session(self, model: Any, **surroundings: Any) -> Any:
        from ..progressive_session import ProgressiveSession

        return ProgressiveSession(self, model, **surroundings)


METHODS.register(UniformSites.name, UniformSites)
