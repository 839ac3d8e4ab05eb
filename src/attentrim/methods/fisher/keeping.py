"""The fastest model within a drop of the metric: what was reached at each speed, judged on held-out data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import MethodError, TrainingError

if TYPE_CHECKING:
    from .session import FisherSession

DENSE = 1.0


class Kept:
    """Judges the dense model and that of each speed, and keeps the weights of the fastest one that is good enough."""

    def __init__(self, session: FisherSession) -> None:
        self.session = session
        self.values: dict[float, float] = {}
        """The metric on held-out data by speed; that of the dense model under 1."""
        self.best: dict[str, Any] = {}
        self.chosen: float | None = None
        """The speed whose model was kept in the end."""

    @property
    def is_on(self) -> bool:
        return self.session.method.max_drop is not None

    def mark_dense(self) -> None:
        """Judge the dense model, once."""
        if self.is_on and DENSE not in self.values:
            self.judge(DENSE)

    def judge(self, speedup: float) -> None:
        if not self.is_on:
            return
        session, drop = self.session, self.session.method.max_drop
        if session.evaluate is None:
            raise MethodError("max_drop is judged by a metric: attach(model, evaluate=...).")
        value = float(session.evaluate())
        if math.isnan(value):
            raise TrainingError(f"The metric that max_drop is judged by is NaN at step {session.steps_done}.")
        self.values[speedup] = value
        assert drop is not None
        if value >= self.values[DENSE] - drop:
            weights = {name: tensor.detach().cpu().clone() for name, tensor in session.model.state_dict().items()}
            state = {"open": session.open.cpu(), "off": session.off, "cost": session.cost}
            self.best = {"speedup": speedup, "weights": weights, **state}

    def restore_best(self) -> None:
        """Go back to the fastest model that was good enough; the dense one where no other was."""
        if not self.is_on:
            return
        session, best = self.session, self.best
        session.model.load_state_dict(best["weights"])
        session.open, session.off = best["open"].to(session.device), best["off"]
        session.cost = best["cost"]
        self.chosen = best["speedup"]

    def remarks(self) -> list[str]:
        if not self.is_on or self.chosen is None:
            return []
        values = ", ".join(
            f"{'dense' if speed == DENSE else f'{speed:g} x'} {value:.4f}" for speed, value in self.values.items()
        )
        drop = f"within {self.session.method.max_drop:g} of the dense model on held-out training data ({values})"
        if self.chosen == DENSE:
            return [f"Nothing was removed: none of the speeds tried stayed {drop}."]
        return [f"Kept the fastest model {drop}."]

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "best": self.best, "chosen": self.chosen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.values, self.best, self.chosen = dict(state["values"]), state["best"], state["chosen"]
