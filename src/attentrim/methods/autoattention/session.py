"""AutoAttention at work. Equations are those of the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import MethodError, TrainingError
from ..learned import LearnedGates
from . import AutoAttention

MEAN, DEVIATION, HIGHEST = 1.0, 0.3, 2.0
FASTER, SLOWER, FASTEST = 1.5, 0.5, 5.0
"""How a budget changes the gates' learning rate; the highest is that of the paper's sweep."""
PATIENCE = 4
"""Checks in a row beyond a budget after which the gates go back: held-out metrics are noisy."""


def _sigmoid_slope(x: Tensor) -> Tensor:
    return x.sigmoid() * (1 - x.sigmoid())


COARSE: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": nn.functional.softplus,
    "sigmoid": _sigmoid_slope,
    "linear": torch.ones_like,
    "relu": lambda x: (x > 0).to(x),
    "clipped_relu": lambda x: ((x > 0) & (x < 1)).to(x),
}
"""What the backward of the step function multiplies by, by name (eq. 10 prints softplus)."""


class StepGate(torch.autograd.Function):
    """1 where the parameter is above 0, else 0 (eq. 8); backward by a coarse gradient."""

    @staticmethod
    def forward(ctx: Any, parameters: Tensor, coarse: str) -> Tensor:
        ctx.save_for_backward(parameters)
        ctx.coarse = COARSE[coarse]
        return (parameters > 0).to(parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (parameters,) = ctx.saved_tensors
        return gradients[0] * ctx.coarse(parameters), None


class AutoAttentionSession(LearnedGates):
    method: AutoAttention

    def __init__(self, method: AutoAttention, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.budget = Budget(self) if method.max_drop is not None else None

    def initial(self) -> Tensor:
        start = torch.empty(self.count)
        tiny = torch.finfo(start.dtype).tiny
        return nn.init.trunc_normal_(start, MEAN, DEVIATION, tiny, HIGHEST, generator=self.generator)

    def make_optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.method.gate_lr)

    def gates(self) -> Tensor:
        gates: Tensor = StepGate.apply(self.parameters, self.method.backward)  # type: ignore[no-untyped-call]
        return gates

    def training_gates(self) -> Tensor:
        return self.open if self.is_fixed else self.gates()

    def hard(self) -> Tensor:
        return (self.parameters.detach() > 0).float()

    def penalty_gradient(self) -> Tensor:
        """Of mu * sum(G), through the step (eq. 9, 10)."""
        rests = self.budget is not None and self.budget.failures > 0
        return COARSE[self.method.backward](self.parameters) * (0.0 if rests else self.method.pressure)

    @torch.no_grad()
    def project(self, closed: int) -> None:
        """The smallest common shift that leaves just `closed` parameters at or below 0."""
        ordered = self.parameters.sort().values
        first_open = ordered[closed]
        last_closed = ordered[closed - 1] if closed else first_open - 0.02
        too_few = torch.where(last_closed > 0, last_closed, torch.zeros_like(last_closed))
        self.parameters -= torch.where(first_open <= 0, (first_open + last_closed) / 2, too_few)

    def arm(self, training: bool) -> None:
        if training and self.budget is not None:
            self.budget.check()
        super().arm(training)

    def finish(self) -> None:
        if self.budget is not None:
            self.budget.settle()
        super().finish()

    @property
    def settled(self) -> bool:
        return super().settled and not self.keeps_best

    @property
    def keeps_best(self) -> bool:
        return self.budget is not None

    @property
    def may_close_all(self) -> bool:
        """Within a budget, a step too far is taken back at the next check."""
        return self.budget is not None

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), **(self.budget.metrics() if self.budget else {})}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "budget": self.budget and self.budget.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.budget is not None:
            self.budget.load_state_dict(state["budget"])


class Budget:
    """The most heads within a given drop of the metric.

    The dense model, when it is trained, sets the mark. Then, at regular checks: within the budget, the state is kept
    if it is the sparsest so far, and the gates learn faster. Beyond it, the penalty rests while the weights go on; if
    that does not bring the metric back after a few checks, the gates go back to the sparsest state that was within,
    and learn slower. At the end the model is that sparsest state.
    """

    def __init__(self, session: AutoAttentionSession) -> None:
        self.session = session
        self.mark: float | None = None
        self.value: float | None = None
        self.best: dict[str, Any] = {}
        self.failures = 0
        """Checks in a row that were beyond the budget."""
        self._checked = -1

    def check(self) -> None:
        """Judge the model as it is, if it is time to."""
        session = self.session
        if session.steps is None:
            raise MethodError("AutoAttention within a budget works to a schedule: attach(model, steps=...).")
        every = max(1, (session.steps - session.dense_until) // session.method.checks)
        since = session.taken - session.dense_until
        if since >= 0 and since % every == 0 and session.taken != self._checked:
            self._checked = session.taken
            self._judge()

    def settle(self) -> None:
        """Judge the last state too, then go back to the best."""
        self._judge()
        self.session.model.load_state_dict(self.best["weights"])
        self._restore_gates()
        self.value = self.best["value"]

    def _judge(self) -> None:
        session = self.session
        if session.evaluate is None:
            raise MethodError("AutoAttention within a budget judges by a metric: attach(model, evaluate=...).")
        session.set(session.open)
        self.value = float(session.evaluate())
        if math.isnan(self.value):
            raise TrainingError(f"The metric that the budget is judged by is NaN at step {session.taken}.")
        if self.mark is None:
            self.mark = self.value
        assert session.method.max_drop is not None
        closed = int((session.open == 0).sum())
        within = self.value >= self.mark - session.method.max_drop and closed < session.count
        if within and closed >= self.best.get("closed", 0):
            weights = {name: tensor.detach().cpu().clone() for name, tensor in session.model.state_dict().items()}
            parameters = session.parameters.detach().cpu().clone()
            self.best = {"closed": closed, "value": self.value, "weights": weights, "parameters": parameters}
        self.failures = 0 if within else self.failures + 1
        if self.failures == PATIENCE:
            self._restore_gates()
            self.failures = 0
            self._change_rate(SLOWER)
        elif within:
            self._change_rate(FASTER)

    def _change_rate(self, factor: float) -> None:
        for group in self.session.optimizer.param_groups:
            group["lr"] = min(group["lr"] * factor, max(FASTEST, self.session.method.gate_lr))

    def _restore_gates(self) -> None:
        session = self.session
        session.parameters.data = self.best["parameters"].to(session.device, copy=True)
        session.open = session.hard()
        session.history.note(session.taken, session.open)

    def metrics(self) -> dict[str, float]:
        if self.mark is None or self.value is None:
            return {}
        rate = self.session.optimizer.param_groups[0]["lr"]
        return {"budget_mark": self.mark, "budget_value": self.value, "gate_lr": rate}

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("mark", "value", "best", "failures", "_checked")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
