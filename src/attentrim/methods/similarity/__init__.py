"""Similarity: whole attention blocks, feed-forward blocks or layers that change the residual stream least."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...distillation import Distillation
from ...errors import MethodError, unknown_name
from ...options import AT_LEAST_ONE, SHARE, one_of, option
from ..base import METHODS, DataNeeds, Method
from .blocks import BLOCKS, in_words

__all__ = ["Similarity"]

ORDERS = {
    "similarity": "those that changed the residual stream least on calibration data",
    "last": "the last ones",
    "greedy": "one after the other, each time the one whose removal cost least on calibration data",
}


@dataclass(kw_only=True)
class Similarity(Method):
    """Remove whole blocks that hardly change the hidden states, then train without them."""

    name: ClassVar[str] = "similarity"
    summary: ClassVar[str] = (
        "whole attention blocks, feed-forward blocks or layers that change the hidden states least"
    )
    paper: ClassVar[str] = (
        "Men et al. 2024, ShortGPT; He et al. 2024, What Matters in Transformers? Not All Attention is Needed"
    )
    searches: ClassVar[bool] = True
    use_labels: ClassVar[bool] = False

    remove: str | None = option(
        None,
        "what to remove: attention:4, feed_forward:4, layers:4, or several, comma-separated (default: a quarter of "
        "the attention blocks)",
    )
    order: str = option(
        "similarity", "which go first: similarity (least change), last, or greedy (least loss)", one_of(tuple(ORDERS))
    )
    calibration_samples: int = option(32, "number of training examples to choose by", AT_LEAST_ONE)
    dense_share: float | None = option(
        None,
        "share of the steps for plain fine-tuning first (default: a third if the task head is new, otherwise 0)",
        SHARE,
    )
    distill: bool = option(True, "under attentrim's Trainer, distil from the dense model by default")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.remove is not None and not self.counts:
            raise MethodError(f"remove says what and how many, such as attention:4. Got {self.remove!r} instead.")

    @property
    def counts(self) -> dict[str, int]:
        """How many blocks of which type; empty by default."""
        found: dict[str, int] = {}
        for part in (self.remove or "").split(","):
            name, _, count = (word.strip() for word in part.partition(":"))
            if not name and not count:
                continue
            if name not in BLOCKS:
                raise MethodError(unknown_name("type of block", name, BLOCKS))
            if not count.isdecimal() or int(count) < 1 or name in found:
                raise MethodError(
                    f"remove lists each type of block once, with a number of 1 or more, such as {name}:4. "
                    f"Got {self.remove!r} instead."
                )
            found[name] = int(count)
        return {name: found[name] for name in BLOCKS if name in found}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(BLOCKS[name] for name in self.counts or ("attention",))

    @property
    def dense(self) -> float:
        return self.dense_share or 0.0

    def starting_from(self, trained: bool) -> Similarity:
        return self if trained or self.dense_share is not None else replace(self, dense_share=1 / 3)

    @property
    def default_distillation(self) -> Distillation | None:
        return Distillation(logits=1.0, hidden=1.0, label_weight=0.5) if self.distill else None

    @property
    def data(self) -> DataNeeds:
        return DataNeeds(calibration=0 if self.order == "last" else self.calibration_samples)

    @property
    def reason(self) -> str:
        sorts = [f"{count} {in_words(name, count)}" for name, count in self.counts.items()]
        amount = " and ".join(sorts) or "a quarter of the attention blocks"
        return f"Removed {amount}: {ORDERS[self.order]}."

    def session(self, model: Any, **surroundings: Any) -> Any:
        from .session import SimilaritySession

        return SimilaritySession(self, model, **surroundings)


METHODS.register(Similarity.name, Similarity)
