"""L0 at work: the hard-concrete distribution, and gates drawn from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...modes import evaluating
from ..learned import LearnedGates
from ..processes import average, processes, rank

if TYPE_CHECKING:
    from . import L0

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1


def hard_concrete(logits: Tensor, noise: Tensor) -> Tensor:
    """Gates in [0, 1] from uniform noise: a concrete variable stretched to (gamma, zeta) and clamped."""
    concrete = torch.sigmoid((noise.log() - (-noise).log1p() + logits) / BETA)
    return (concrete * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def chance_closed(logits: Tensor) -> Tensor:
    """P(g = 0), eq. 11."""
    return torch.sigmoid(BETA * math.log(-GAMMA / ZETA) - logits)


def chance_open(logits: Tensor) -> Tensor:
    """P(g = 1)."""
    return torch.sigmoid(logits - BETA * math.log((1 - GAMMA) / (ZETA - 1)))


class L0Session(LearnedGates):
    method: L0

    def __init__(self, method: L0, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.parameters.requires_grad_()
        self.optimizer = torch.optim.Adam([self.parameters], lr=method.gate_lr)
        self.gap: dict[str, float] = {}

    def initial(self) -> Tensor:
        return torch.full((self.count,), self.method.initial_logit)

    def hard(self) -> Tensor:
        """Whichever of P(g = 0) and P(g = 1) is larger."""
        logits = self.parameters.detach()
        return (chance_open(logits) > chance_closed(logits)).float()

    def sample(self) -> Tensor:
        # drawn for all processes, so that each has gates of its own, and their random numbers stay in step
        noise = torch.rand(processes(), self.count, generator=self.generator)[rank()].clamp_(1e-6, 1 - 1e-6)
        return hard_concrete(self.parameters, noise.to(self.device, non_blocking=True))

    def training_gates(self) -> Tensor:
        return self.open if self.is_fixed else self.sample()

    def penalty_gradient(self) -> Tensor:
        """Of mu times the expected number of gates that are not 0 (eq. 12): a sum of sigmoids."""
        closed = chance_closed(self.parameters)
        return self.method.pressure * closed * (1 - closed)

    def take_gradient(self) -> Tensor | None:
        gradient, self.parameters.grad = self.parameters.grad, None
        return gradient

    def learn(self, gradient: Tensor) -> None:
        self.parameters.grad = gradient.add_(self.penalty_gradient())
        self.optimizer.step()
        self.parameters.grad = None

    @torch.no_grad()
    def project(self, amount: float) -> Tensor:
        """The common shift at which gates that are expected to be open weigh what the target leaves.

        Found by three rounds over a grid: one tensor operation each, where a bisection would be a chain of forty.
        """
        started = float(1 - chance_closed(torch.tensor(self.method.initial_logit)))
        wanted = min(self.whole_amount - amount, self.whole_amount * started)
        shift, reach = self.parameters.new_zeros(()), 20.0
        for _ in range(3):
            shifts = shift + torch.linspace(-reach, reach, 129, device=self.device)
            expected = self._expected_open(self.parameters + shifts[:, None])
            shift = shifts[(expected - wanted).abs().argmin()]
            reach /= 64
        self.parameters += shift
        return self.first(self.parameters.argsort(stable=True), amount)

    def _expected_open(self, logits: Tensor) -> Tensor:
        """In weights of units."""
        chances = 1 - chance_closed(logits)
        return chances.sum(-1) if self.weights is None else chances @ self.weights

    def start_step(self) -> None:
        super().start_step()
        if self.is_fixed and not self.gap:
            self.measure_gap()

    def finish(self) -> None:
        super().finish()
        if not self.gap:
            self.measure_gap()

    def measure_gap(self, draws: int = 4) -> None:
        """Mean loss on the calibration data under sampled gates, as trained, and under binary ones, as tested.

        Not where the model gives no loss, as on data without labels.
        """
        if self.calibration is None:
            return
        totals = torch.zeros(3, device=self.device)
        with evaluating(self.model), torch.no_grad():
            for batch in self.batches():
                binary = self._loss_under(self.open, batch)
                if binary is None:
                    return
                sampled = torch.stack([self._loss_under(self.sample(), batch) for _ in range(draws)]).mean()
                totals += torch.stack([sampled, binary, torch.ones_like(binary)]).float()
        sampled, binary = (average(totals)[:2] / totals[2]).tolist()
        self.gap = {"sampled_loss": sampled, "binary_loss": binary, "sampled_binary_gap": binary - sampled}

    def _loss_under(self, gates: Tensor, batch: Mapping[str, Any]) -> Any:
        with self.gates_set(gates):
            return self.model(**batch).get("loss")

    def metrics(self) -> dict[str, float]:
        expected = float((1 - chance_closed(self.parameters.detach())).sum())
        return {**super().metrics(), "gates_expected_open": expected, **self.gap}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "optimizer": self.optimizer.state_dict(), "gap": self.gap}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.optimizer.load_state_dict(state["optimizer"])
        self.gap = dict(state["gap"])
