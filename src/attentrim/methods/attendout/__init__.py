"""AttendOut: a generator learns which attention to drop while two copies of the model train against each other."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import MethodError
from ...options import (
    AT_LEAST_ONE,
    AT_LEAST_TWO,
    NONE_TO_ALL,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_ALL,
    one_of,
    option,
)
from ..base import METHODS, DataNeeds
from ..progressive import ORDER_IN_WORDS, ProgressiveMethod, SitePruning, amount_in_words

__all__ = ["AttendOut"]

ESTIMATORS = ("policy", "contrast", "heldout", "lookahead")
SOURCES = ("cached", "dev", "noisy_train", "train_split")
RESTARTS = ("attacker", "better", "sampled")
BASELINES = ("none", "moving_average", "leave_one_out")
ORDERS = ("generator", "greedy", "top")

_PAPERS = {
    "window": 10,
    "estimator": "policy",
    "unit": "pair",
    "shared_noise": False,
    "embedding": "own",
    "generator_lr": 5e-5,
    "generator_warmup": 0.0,
    "prior": 0.0,
    "drop_cost": 0.0,
}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "window": 5,
        "estimator": "contrast",
        "reward_source": "train_split",
        "restart": "attacker",
        "baseline": "leave_one_out",
        "unit": "key",
        "shared_noise": True,
        "embedding": "model",
        "generator_width": 64,
        "generator_lr": 1e-3,
        "generator_warmup": 0.25,
        "prior": 2.0,
        "drop_cost": 0.1,
    },
    "v1": {**_PAPERS, "reward_source": "cached", "restart": "attacker", "baseline": "none"},
    "v2": {**_PAPERS, "reward_source": "dev", "restart": "sampled", "baseline": "moving_average"},
}


@dataclass(kw_only=True)
class AttendOut(ProgressiveMethod):
    """Train under attention masks that a generator learns to make; optionally prune sites by what it learned."""

    name: ClassVar[str] = "attendout"
    summary: ClassVar[str] = (
        "a generator learns which attention to drop in training; whole sites can be pruned afterwards"
    )
    paper: ClassVar[str] = "Not All Attention Is All You Need (two versions)"

    preset: str = option(
        "default",
        "default, or as in the papers: v1 (the version that prunes) or v2 (the one that regularises)",
        one_of(list(PRESETS)),
    )
    # the game
    window: int = option(None, "optimiser steps between two dropout steps (the papers' T)", AT_LEAST_ONE)
    restart: str = option(
        None,
        f"whose weights both networks continue with after a dropout step: {', '.join(RESTARTS)}",
        one_of(RESTARTS),
    )
    restart_temperature: float = option(
        1.0,
        "sampled restart: the attacker is kept with probability sigmoid(sum of rewards / (temperature * scale))",
        POSITIVE,
    )
    restart_scale: str = option(
        "fixed",
        "sampled restart: the scale; fixed: 1; spread: running root mean square of the reward sums, the last included",
        one_of(("fixed", "spread")),
    )
    plain_run: bool = option(
        False, "train a third, plain copy on the same batches and record its metric at each evaluation"
    )
    holdout_curve: bool = option(
        False, "train_split, max_drop: record the metric on the held-out part of the training data at each evaluation"
    )
    # what the generator learns from
    estimator: str = option(
        None,
        "policy: a reward for all masks of a step (the papers'); contrast: several masks for each held-out example, "
        "against each other; heldout: gradient of the held-out loss under the masks; lookahead: agreement of the "
        "masked training gradient with the held-out one",
        one_of(ESTIMATORS),
    )
    reward_source: str = option(
        None, f"data that rewards and estimates are computed on: {', '.join(SOURCES)}", one_of(SOURCES)
    )
    reward: str = option(
        "loss",
        "what rewards compare: loss or correctness",
        one_of(("loss", "correctness")),
    )
    reward_samples: int = option(1, "examples per step of a window that a reward is averaged over", AT_LEAST_ONE)
    estimate_samples: int = option(
        32, "all estimators but policy: maximum number of held-out examples per estimate", AT_LEAST_ONE
    )
    draws: int = option(4, "contrast: masks drawn for each held-out example", AT_LEAST_TWO)
    baseline: str = option(None, f"what is subtracted from the rewards: {', '.join(BASELINES)}", one_of(BASELINES))
    baseline_decay: float = option(0.9, "decay of the moving average", SHARE)
    cache_samples: int = option(
        8, "policy, cached: examples of each batch to keep for a window, for rewards and for learning", AT_LEAST_ONE
    )
    shuffle_rewards: bool = option(
        False,
        "control experiment: the generator learns from rewards in random order (policy: drawn from all so far; "
        "heldout, lookahead: labels in random order); restarts go by the real ones",
    )
    holdout_share: float = option(0.05, "train_split, max_drop: share of the training data to hold out", SHARE)
    noise: float = option(0.15, "noisy_train: share of tokens replaced at random", SHARE)
    # the generator
    unit: str = option(
        None, "what one decision covers: a (query, key) pair, a key or a site", one_of(("pair", "key", "site"))
    )
    shared_noise: bool = option(
        None, "use the same random numbers for all sites of an input, so that decisions are correlated"
    )
    prior: float = option(
        None, "added to the generator's scores; at the start, 0 drops about half of the pairs, 2 about 12%"
    )
    drop_cost: float = option(
        None, "price on the probability of dropping, in units of the loss; not for policy", NOT_NEGATIVE
    )
    generator_lr: float = option(None, "learning rate of the generator's own Adam", NOT_NEGATIVE)
    generator_warmup: float = option(
        None, "share of the game, at its start, in which masks are drawn but the generator does not learn", SHARE
    )
    generator_width: int | None = option(None, "width of the generator (default: the model's)", AT_LEAST_ONE)
    embedding: str = option(
        None,
        "own: a trained copy of the model's embeddings; model: the model's embeddings, unchanged",
        one_of(("own", "model")),
    )
    residual: bool = option(True, "residual connection and LayerNorm in the generator")
    # pruning
    prune_count: int | None = option(None, "make exactly this many sites uniform", AT_LEAST_ONE)
    prune_threshold: float | None = option(
        None, "make sites uniform whose attention the generator drops with at least this probability", SHARE_OR_ALL
    )
    max_drop: float | None = option(
        None, "make as many sites uniform as cost at most this much of the metric on held-out training data", SHARE
    )
    prune_order: str = option(
        "generator",
        "which site goes first: most dropped by the generator, greedy by the metric, or top",
        one_of(ORDERS),
    )
    tune_share: float = option(
        0.0,
        "share of the steps, at the end, for fine-tuning while these sites become uniform one by one (below 1)",
        NONE_TO_ALL,
    )
    calibration_samples: int = option(256, "number of training examples to measure drop rates on", AT_LEAST_ONE)

    def __post_init__(self) -> None:
        chosen = PRESETS.get(self.preset, {})
        for name, value in chosen.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__()
        self._check_pruning()
        if self.estimator != "policy" and self.reward_source == "cached":
            raise MethodError(
                f"The {self.estimator} estimator needs data that is not trained on: set reward_source to one of "
                f"{', '.join(SOURCES[1:])}."
            )
        if self.holdout_curve and not (self.has_game and self.data.holdout):
            raise MethodError(
                "holdout_curve is for a game with held-out training data: set reward_source=train_split, or max_drop."
            )
        if not self.has_game:
            amount = f"count={self.prune_count}" if self.prune_count is not None else f"max_drop={self.max_drop:g}"
            warnings.warn(
                "AttendOut without a game is a method of its own: in place of tune_share=1 use "
                f"UniformSites({amount}, order={self.prune_order!r}), or --method uniform-sites.",
                FutureWarning,
                stacklevel=3,
            )

    def _check_pruning(self) -> None:
        amounts = [name for name in ("prune_count", "prune_threshold", "max_drop") if getattr(self, name) is not None]
        if len(amounts) > 1:
            raise MethodError(f"AttendOut takes one of {' and '.join(amounts)}, not several.")
        if self.prune_threshold is not None and self.prune_order != "generator":
            raise MethodError("prune_threshold is about what the generator drops: leave prune_order at 'generator'.")
        if self.tune_share and not amounts:
            raise MethodError("tune_share is for pruning: set prune_count, prune_threshold or max_drop too.")
        if not self.has_game and self.prune_order == "generator":
            raise MethodError("With tune_share=1 no generator learns: set prune_order to 'top' or 'greedy'.")
        if not self.has_game and self.plain_run:
            raise MethodError("plain_run trains beside the game, and with tune_share=1 there is none.")

    @property
    def has_game(self) -> bool:
        """Whether there is a game at all, or nothing but fine-tuning with sites uniform."""
        return self.tune_share < 1

    @property
    def whole_weights(self) -> str:
        return "its networks exchange weights and optimiser states" if self.has_game else ""

    @property
    def needs_defender(self) -> bool:
        """A defender has no effect if its weights are never chosen and its losses earn no reward."""
        return self.estimator == "policy" or self.restart != "attacker"

    @property
    def pruning(self) -> SitePruning | None:
        if self.prune_count is None and self.prune_threshold is None and self.max_drop is None:
            return None
        return SitePruning(self.prune_count, self.max_drop, self.prune_order == "greedy")

    @property
    def first_share(self) -> float:
        return 1 - self.tune_share

    @property
    def dense(self) -> float:
        """With fine-tuning after the pruning, the game comes before, and the model that it leaves is the teacher."""
        return self.first_share if self.tune_share else 0.0

    @property
    def data(self) -> DataNeeds:
        rewards = self.reward_source if self.has_game and self.reward_source != "cached" else None
        judged = self.pruning is not None and self.pruning.judged_by_metric
        return DataNeeds(
            calibration=self.calibration_samples if self.has_game and self.pruning is not None else 0,
            holdout=self.holdout_share if judged or rewards == "train_split" else 0.0,
            rewards=rewards,
            noise=self.noise if rewards == "noisy_train" else 0.0,
        )

    @property
    def reason(self) -> str:
        if self.pruning is None:
            return super().reason
        if self.prune_threshold is not None:
            share = f"{self.prune_threshold:.0%}"
            return f"Attention made uniform in the sites that the generator dropped at least {share} of the time."
        first = {"generator": "those whose attention the generator dropped most", **ORDER_IN_WORDS}[self.prune_order]
        return f"Attention made uniform in {amount_in_words(self.pruning)}: {first}."

    def session(self, model: Any, **surroundings: Any) -> Any:
        if not self.has_game:
            from ..progressive_session import ProgressiveSession

            return ProgressiveSession(self, model, **surroundings)
        from .session import AttendOutSession

        return AttendOutSession(self, model, **surroundings)


METHODS.register(AttendOut.name, AttendOut)
