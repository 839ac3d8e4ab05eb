"""Sessions that open and close gates: all gates of a model in one vector, with their history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..errors import MethodError, TrainingError, UnsupportedModelError
from ..plan import Plan
from .base import GateMethod
from .history import GateHistory
from .session import Session
from .units import Units

LOOK_EVERY = 25
"""Steps between two looks at the gates: each look waits for the device."""


class GateSession(Session):
    """One gate per unit. What the units are, and where they are in the model, `units` knows."""

    method: GateMethod
    dense_until = 0
    """The first so many steps are plain fine-tuning."""

    def __init__(self, method: GateMethod, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        try:
            self.units = Units(self.control, self.gated_kinds)
        except MethodError:
            self.detach()
            raise
        self.weights = self.units.weights(method.measure, self.device)
        """What each unit weighs; None: all the same."""
        self._overrides: list[Tensor | None] = []
        if not self.units.count:
            self.detach()
            raise UnsupportedModelError(
                f"This {type(self.model).__name__} has no {' or '.join(method.kinds)} left to choose from."
            )
        self.open = torch.ones(self.count, device=self.device)
        """The hard gates of the moment, 1 or 0, which evaluation uses. Replaced, never changed in place."""
        self.history = GateHistory(self.open, self._check_gates, self.units.traced)

    @property
    def gated_kinds(self) -> tuple[str, ...]:
        """The kinds whose units have a gate each."""
        return self.method.kinds

    @property
    def count(self) -> int:
        return self.units.count

    @property
    def is_dense(self) -> bool:
        """Whether training is still plain fine-tuning."""
        return self.steps_done < self.dense_until

    # The life of a session

    def begin(self, steps: int) -> None:
        super().begin(steps)
        self.dense_until = round(self.method.dense * steps)

    def before_forward(self, training: bool) -> None:
        if self.open.device != self.device:
            self.move(self.device)
        if self._overrides:
            self.apply_gates(self._overrides[-1])
        elif self.is_dense:
            self.apply_gates(None)
        else:
            self.apply_gates(self.training_gates() if training and torch.is_grad_enabled() else self.open)

    def move(self, device: torch.device) -> None:
        """The model is on another device now."""
        self.open = self.open.to(device)
        self.weights = None if self.weights is None else self.weights.to(device)

    def training_gates(self) -> Tensor:
        """The gates that training uses: where they learn, a tensor that collects gradients."""
        return self.open

    def apply_gates(self, gates: Tensor | None) -> None:
        """Put a vector [gates] or [batch, gates] onto the model; None: nothing is gated."""
        self.units.apply(self.control, gates)

    @contextmanager
    def gates_set(self, gates: Tensor | None) -> Iterator[None]:
        """All forwards use these gates, for passes over data that need gates of their own; None: none."""
        self._overrides.append(gates)
        try:
            self.apply_gates(gates)  # parts of the model that are called on their own have no hook
            yield
        finally:
            self._overrides.pop()
            self.before_forward(training=False)

    def before_optimizer_step(self, scale: float = 1.0) -> None:
        super().before_optimizer_step(scale)
        self.history.note(self.steps_done, self.open)
        if self.steps_done % LOOK_EVERY == 0:
            self.history.look()

    def finish(self) -> None:
        self.history.look()
        if self.control.attached:
            self.before_forward(training=False)

    # How many, and which

    def removals(self, share: float) -> float:
        """How much to close for a share of all, in weights of units; one unit always stays open."""
        if self.weights is None:
            return min(round(share * self.count), self.count - 1)
        return share * float(self.weights.sum())

    def first(self, order: Tensor, amount: float) -> Tensor:
        """The units, in this order, that weigh an amount together, as nearly as can be."""
        if self.weights is None:
            return order[: int(amount)]
        sums = self.weights.to(order.device)[order].cumsum(0)
        count = int((sums - amount).abs().argmin()) + 1 if amount > 0 else 0
        return order[: min(count, self.count - 1)]

    def closed_amount(self) -> float:
        """How much is closed, in weights of units."""
        closed = self.open == 0
        return int(closed.sum()) if self.weights is None else float(self.weights.to(closed.device)[closed].sum())

    @property
    def whole_amount(self) -> float:
        return self.count if self.weights is None else float(self.weights.sum())

    def close(self, closed: Tensor) -> None:
        """Close the gates with these indices and open all others."""
        self.open = torch.ones(self.count, device=self.device).index_fill_(0, closed, 0.0)

    def plan(self) -> Plan:
        return self.planned(self.units.removed(self.open))

    def check(self) -> None:
        self.history.look()

    def _check_gates(self, step: int, gates: Tensor) -> None:
        if not gates.any() and not self.may_close_all:
            raise TrainingError(self.explain_all_closed(step))

    @property
    def may_close_all(self) -> bool:
        return False

    def explain_all_closed(self, step: int) -> str:
        return f"Every gate of the model was closed at step {step}: there is nothing left to train."

    def metrics(self) -> dict[str, float]:
        self.history.look()
        closed = int((self.open == 0).sum())
        return {
            "gates_open": self.count - closed,
            "sparsity": self.closed_amount() / self.whole_amount,
            "gates_closed_so_far": self.history.closings,
            "gates_reopened_so_far": self.history.reopenings,
        }

    def record(self) -> dict[str, Any]:
        return {**self.units.record(self.open), **self.history.take_events(self.units.locate)}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "open": self.open.cpu(), "history": self.history.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if len(state["open"]) != self.count:
            raise MethodError(
                f"This checkpoint is of a model with {len(state['open'])} gates; the model has {self.count}."
            )
        self.open = state["open"].to(self.device)
        self.history.load_state_dict(state["history"], self.open)
        self.before_forward(training=False)
