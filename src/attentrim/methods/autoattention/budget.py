"""AutoAttention within a budget: as many closed gates as a given drop of the metric allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import MethodError, TrainingError

if TYPE_CHECKING:
    from .session import AutoAttentionSession

FASTER, SLOWER, FASTEST = 1.5, 0.5, 5.0
"""How a budget changes the gates' learning rate; the highest is that of the paper's sweep."""
PATIENCE = 4
"""Checks in a row beyond a budget after which the gates go back: held-out metrics are noisy."""


class Budget:
    """The most heads within a given drop of the metric.

    The trained dense model sets the reference. Then, at regular checks: within the budget, the state is saved if it is
    the sparsest so far, and the gates learn faster. Beyond it, the penalty is paused while the weights keep training.
    If that does not recover the metric after a few checks, the gates go back to the sparsest saved state and learn
    slower. At the end the model is in that state.
    """

    def __init__(self, session: AutoAttentionSession) -> None:
        self.session = session
        self.mark: float | None = None
        self.value: float | None = None
        self.best: dict[str, Any] = {}
        self.failures = 0
        """Checks in a row that were beyond the budget."""
        self._checked = -1

    @property
    def rests(self) -> bool:
        """Whether the penalty is paused."""
        return self.failures > 0

    def check(self) -> None:
        """Judge the model as it is, if it is time to."""
        session = self.session
        every = max(1, (session.require_steps() - session.dense_until) // session.method.checks)
        since = session.steps_done - session.dense_until
        if since >= 0 and since % every == 0 and session.steps_done != self._checked:
            self._checked = session.steps_done
            self._judge()

    def settle(self) -> None:
        """Judge the last state too, then go back to the best."""
        self._judge()
        self.session.model.load_state_dict(self.best["weights"])
        self._restore_gates()
        self.value = self.best["value"]

    def _judge(self) -> None:
        session = self.session
        self.value = self._evaluate()
        if self.mark is None:
            self.mark = self.value
        assert session.method.max_drop is not None
        closed = session.closed_amount()
        within = self.value >= self.mark - session.method.max_drop and closed < session.whole_amount
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

    def _evaluate(self) -> float:
        session = self.session
        if session.evaluate is None:
            raise MethodError("AutoAttention within a budget judges by a metric: attach(model, evaluate=...).")
        with session.gates_set(session.open):
            value = float(session.evaluate())
        if math.isnan(value):
            raise TrainingError(f"The metric that the budget is judged by is NaN at step {session.steps_done}.")
        return value

    def _change_rate(self, factor: float) -> None:
        session = self.session
        session.gate_lr = min(session.gate_lr * factor, max(FASTEST, session.method.gate_lr))

    def _restore_gates(self) -> None:
        session = self.session
        session.parameters.data = self.best["parameters"].to(session.device, copy=True)
        session.open = session.hard()
        session.history.note(session.steps_done, session.open)

    def metrics(self) -> dict[str, float]:
        if self.mark is None or self.value is None:
            return {}
        return {"budget_mark": self.mark, "budget_value": self.value, "gate_lr": self.session.gate_lr}

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("mark", "value", "best", "failures", "_checked")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
