"""Gates that learn beside the weights: what AutoAttention and L0 have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import MethodError
from .base import LearnedMethod
from .gates import GateSession
from .processes import average


class LearnedGates(GateSession):
    """One parameter per gate, trained on the gradient of the task loss and of a penalty.

    With a target, the number of closed gates climbs to it over the first part of the search (`ramp_share`); which
    gates they are stays open until the last part of training (`settle_share`), where the set is fixed and only the
    weights go on learning.
    """

    method: LearnedMethod
    fixed_from: int | None = None
    """With a target: the step from which the set is fixed."""

    def __init__(self, method: LearnedMethod, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.generator = torch.Generator().manual_seed(self.seed)
        self.parameters = self.initial().to(self.device)
        self.open = self.hard()

    # What a method defines

    def initial(self) -> Tensor:
        """The parameters at the start, [gates]."""
        raise NotImplementedError

    def hard(self) -> Tensor:
        """The binary gates that the parameters stand for."""
        raise NotImplementedError

    def take_gradient(self) -> Tensor | None:
        """The gradient of the task loss collected in this step. It may be changed: the next step starts with zeros."""
        raise NotImplementedError

    def learn(self, gradient: Tensor) -> None:
        """Move the parameters by the gradient of the task loss and by that of the penalty."""
        raise NotImplementedError

    def project(self, amount: float) -> Tensor:
        """Shift all parameters together, so that gates of this weight are closed; which these are, as indices."""
        raise NotImplementedError

    # The life of a session

    def begin(self, steps: int) -> None:
        super().begin(steps)
        if self.method.target_sparsity is None:
            return
        self.fixed_from = steps - round(self.method.settle_share * steps)
        if self.fixed_from <= self.dense_until:
            raise MethodError(
                f"No step is left to choose in: of {steps}, {self.dense_until} are plain fine-tuning "
                f"(dense_share) and the last {steps - self.fixed_from} keep the set fixed (settle_share)."
            )

    @property
    def is_fixed(self) -> bool:
        return self.fixed_from is not None and self.steps_done >= self.fixed_from

    @property
    def settled(self) -> bool:
        return not self.is_dense and (self.method.target_sparsity is None or self.is_fixed)

    def start_step(self) -> None:
        super().start_step()
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.method.target_sparsity is not None:
            self.require_steps()

    def move(self, device: torch.device) -> None:
        super().move(device)
        self.parameters.data = self.parameters.to(device)

    @torch.no_grad()
    def before_optimizer_step(self, scale: float = 1.0) -> None:
        self._check_schedule()
        gradient = self.take_gradient()
        if gradient is not None and not self.is_dense and not self.is_fixed:
            average(gradient)
            if scale != 1.0:
                # float16: a step whose gradients overflowed is skipped for the weights, and for the gates too
                gradient.div_(scale).masked_fill_(~gradient.isfinite().all(), 0.0)
            if self.weights is not None:
                gradient.div_(self.weights)  # what counts is how much a unit does for what it costs
            # the penalty is added here, once per step, however many batches were accumulated
            self.learn(gradient)
            if self.method.target_sparsity is None:
                self.open = self.hard()
            else:
                self.close(self.project(self.closed_at(self.steps_done + 1)))
        if self.fixed_from is not None and self.steps_done + 1 == self.fixed_from:
            self.fix()
        super().before_optimizer_step(scale)

    def closed_at(self, step: int) -> float:
        """How much a target asks to be closed after a step, in weights of units."""
        assert self.method.target_sparsity is not None
        assert self.fixed_from is not None
        search = self.fixed_from - self.dense_until
        progress = (step - self.dense_until) / (search * self.method.ramp_share)
        amount = self.removals(self.method.target_sparsity) * min(progress, 1.0)
        return round(amount) if self.weights is None else amount

    def fix(self) -> None:
        """From here on just the gates that the target asks for are closed, and stay so."""
        assert self.method.target_sparsity is not None
        order = self.parameters.detach().argsort(stable=True)
        self.close(self.first(order, self.removals(self.method.target_sparsity)))

    def finish(self) -> None:
        if self.method.target_sparsity is not None and not self.is_fixed:
            self.fix()
            self.history.note(self.steps_done, self.open)
        super().finish()

    def explain_all_closed(self, step: int) -> str:
        if not self.parameters.isfinite().all():
            return f"The gate parameters are no longer finite at step {step}: the loss turned NaN or infinite."
        return (
            f"{super().explain_all_closed(step)} Lower the penalty (now {self.method.pressure:g}) or gate_lr (now "
            f"{self.method.gate_lr:g}), or set target_sparsity."
        )

    # What it knows

    def record(self) -> dict[str, Any]:
        return {**super().record(), "gate_parameters": self.units.by_place(self.parameters.detach())}

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "parameters": self.parameters.detach().cpu().clone(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.parameters.data = state["parameters"].to(self.device, copy=True)
        self.generator.set_state(state["generator"])
