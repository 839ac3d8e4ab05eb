"""Gates that learn beside the weights: what AutoAttention and L0 have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import MethodError
from .base import LearnedMethod
from .gates import GateSession
from .session import average


class LearnedGates(GateSession):
    """One parameter a gate, trained by its own optimiser on the gradient of the task loss and of a penalty.

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
        self.parameters = self.initial().to(self.device).requires_grad_()
        self.optimizer = self.make_optimizer([self.parameters])
        self.open = self.hard()

    # What a method defines

    def initial(self) -> Tensor:
        """The parameters at the start, [gates]."""
        raise NotImplementedError

    def make_optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        raise NotImplementedError

    def hard(self) -> Tensor:
        """The binary gates that the parameters stand for."""
        raise NotImplementedError

    def penalty_gradient(self) -> Tensor:
        """The gradient, in the parameters, of what open gates add to the loss."""
        raise NotImplementedError

    def project(self, closed: int) -> None:
        """Shift all parameters together, so that `closed` gates are closed. Their order stays."""
        raise NotImplementedError

    # The life of a session

    def begin(self, steps: int) -> None:
        super().begin(steps)
        if self.method.target_sparsity is None:
            return
        self.fixed_from = steps - round(self.method.settle_share * steps)
        if self.fixed_from <= self.dense_until:
            raise MethodError(
                f"No step is left to choose heads in: of {steps}, {self.dense_until} are plain fine-tuning "
                f"(dense_share) and the last {steps - self.fixed_from} keep the set fixed (settle_share)."
            )

    @property
    def is_fixed(self) -> bool:
        return self.fixed_from is not None and self.taken >= self.fixed_from

    @property
    def settled(self) -> bool:
        return not self.is_dense and (self.method.target_sparsity is None or self.is_fixed)

    def arm(self, training: bool) -> None:
        if self.parameters.device != self.device:
            self.parameters.data = self.parameters.to(self.device)
        if self.method.target_sparsity is not None and self.steps is None and training:
            raise MethodError(
                f"A {type(self.method).__name__} with a target works to a schedule: say how many optimiser steps "
                "there will be, attach(model, steps=...)."
            )
        super().arm(training)

    @torch.no_grad()
    def step(self, scale: float = 1.0) -> None:
        gradient = self.parameters.grad
        if gradient is not None and not self.is_dense and not self.is_fixed:
            average(gradient)
            if scale != 1.0:
                # float16: a step whose gradients overflowed is skipped for the weights, and for the gates too
                gradient.div_(scale).masked_fill_(~gradient.isfinite().all(), 0.0)
            # the penalty is added here, once a step, however many batches were accumulated
            gradient.add_(self.penalty_gradient())
            self.optimizer.step()
            if self.method.target_sparsity is None:
                self.open = self.hard()
            else:
                closed = self.closed_at(self.taken + 1)
                self.project(closed)
                self.close_lowest(closed)
        self.parameters.grad = None
        if self.fixed_from is not None and self.taken + 1 == self.fixed_from:
            self.fix()
        super().step(scale)

    def closed_at(self, step: int) -> int:
        """How many gates a target asks to be closed after a step."""
        assert self.method.target_sparsity is not None
        assert self.fixed_from is not None
        search = self.fixed_from - self.dense_until
        progress = (step - self.dense_until) / (search * self.method.ramp_share)
        return round(self.removals(self.method.target_sparsity) * min(progress, 1.0))

    def close_lowest(self, count: int) -> None:
        self.close(self.parameters.detach().argsort(stable=True)[:count])

    def fix(self) -> None:
        """From here on just the gates that the target asks for are closed, and stay so."""
        assert self.method.target_sparsity is not None
        self.close_lowest(self.removals(self.method.target_sparsity))

    def finish(self) -> None:
        if self.method.target_sparsity is not None and not self.is_fixed:
            self.fix()
            self.history.note(self.taken, self.open)
        super().finish()

    def explain_all_closed(self, step: int) -> str:
        if not self.parameters.isfinite().all():
            return f"The gate parameters are not numbers any more at step {step}: the loss turned NaN or infinite."
        return (
            f"{super().explain_all_closed(step)} Lower the penalty (now {self.method.pressure:g}) or gate_lr (now "
            f"{self.method.gate_lr:g}), or set target_sparsity."
        )

    # What it has to say

    def record(self) -> dict[str, Any]:
        return {**super().record(), "gate_parameters": self.by_site(self.parameters.detach())}

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "parameters": self.parameters.detach().cpu().clone(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.parameters.data = state["parameters"].to(self.device, copy=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
