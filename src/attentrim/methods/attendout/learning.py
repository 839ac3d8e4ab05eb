"""How the generator learns: one step of its own optimiser for each dropout step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...calibration import HeldOut
from ..processes import average
from .estimators import Baseline, contrast, held_out_gradient, look_ahead, policy_gradient
from .game import Batch, Step
from .masks import Masks

if TYPE_CHECKING:
    from . import AttendOut

MAX_NORM = 1.0
"""The norm to which the generator's gradient is clipped."""


class GeneratorLearning:
    """The generator's optimiser and the data that it learns from.

    Args:
        held_out: What all estimators but `policy` take examples from.
        choices: Random numbers that are the same in all processes.
    """

    def __init__(
        self,
        method: AttendOut,
        model: Any,
        parameters: Sequence[nn.Parameter],
        masks: Masks,
        *,
        held_out: HeldOut | None,
        choices: torch.Generator,
    ) -> None:
        self.method, self.model, self.parameters, self.masks = method, model, parameters, masks
        self.held_out, self.choices = held_out, choices
        self.networks = masks.networks
        self.optimizer = torch.optim.Adam([{"params": list(self.networks.parameters())}], lr=method.generator_lr)
        self.baseline = Baseline(method.baseline, method.baseline_decay)
        self._past_rewards: list[float] = []

    def step(self, window: Sequence[Step], rewards: Tensor | None, training_gradient: Sequence[Tensor]) -> None:
        """Learn from a window: its rewards, or an estimate on held-out data.

        `training_gradient` is that of the window's last step, for the look-ahead.
        """
        self.optimizer.zero_grad()
        if self.method.estimator == "policy":
            assert rewards is not None
            rewards = self._drawn_from_past(rewards) if self.method.shuffle_rewards else rewards
            policy_gradient(self.masks, [step.rounds for step in window], self.baseline.advantages(rewards))
        else:
            self._estimate(window[-1].batches, training_gradient)
        parameters = list(self.networks.parameters())
        for parameter in parameters:
            if parameter.grad is not None:
                average(parameter.grad)
        nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _estimate(self, trained_on: Sequence[Batch], training_gradient: Sequence[Tensor]) -> None:
        method, batches = self.method, self._estimate_batches()
        if method.estimator == "heldout":
            held_out_gradient(self.model, self.masks, batches, drop_cost=method.drop_cost)
        elif method.estimator == "contrast":
            contrast(
                self.model,
                self.masks,
                batches,
                draws=method.draws,
                reward=method.reward,
                drop_cost=method.drop_cost,
                change=self._shuffled if method.shuffle_rewards else None,
            )
        else:
            look_ahead(
                self.model,
                self.masks,
                self.parameters,
                trained_on,
                batches,
                training_gradient,
                drop_cost=method.drop_cost,
            )

    def _estimate_batches(self) -> list[Batch]:
        assert self.held_out is not None
        batches = self.held_out.draw(min(self.method.estimate_samples, len(self.held_out)))
        if self.method.shuffle_rewards and self.method.estimator != "contrast":
            for batch in batches:
                batch["labels"] = self._shuffled(batch["labels"])
        return batches

    def _shuffled(self, values: Tensor) -> Tensor:
        """The control experiment: in random order."""
        return values[torch.randperm(len(values), generator=self.choices).to(values.device)]

    def _drawn_from_past(self, rewards: Tensor) -> Tensor:
        """The control experiment for rewards of whole steps: as many, drawn from all that there were so far."""
        self._past_rewards += rewards.tolist()
        drawn = torch.randint(len(self._past_rewards), (len(rewards),), generator=self.choices)
        return torch.tensor([self._past_rewards[place] for place in drawn.tolist()], device=rewards.device)

    def state_dict(self) -> dict[str, Any]:
        return {
            "networks": self.networks.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "baseline": self.baseline.average,
            "past_rewards": self._past_rewards,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.networks.load_state_dict(state["networks"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.baseline.average = state["baseline"]
        self._past_rewards = state["past_rewards"]
