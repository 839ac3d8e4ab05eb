"""Gates that are closed in one go, or in a few rounds, by a choice: what Random, HISP and SMP have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .base import ScoringMethod
from .gates import GateSession


class ScoredGates(GateSession):
    """Closes gates at the start of set steps. What it closes stays closed; the weights go on learning without it."""

    method: ScoringMethod
    pruned = 0.0
    """How much is closed, in weights of units."""
    judged: Tensor | None = None
    """The scores that the last choice went by, one per gate; None where it went by none."""

    def choose(self, amount: float) -> Tensor:
        """The gates to close, which weigh this much together, as indices."""
        raise NotImplementedError

    @property
    def target(self) -> float:
        return self.removals(self.method.target_sparsity)

    def due(self) -> float:
        """How much must be closed by now."""
        return 0 if self.is_dense else self.target

    def start_step(self) -> None:
        super().start_step()
        due = self.due()
        if self.pruned < due:
            self.prune(due)

    def prune(self, amount: float) -> None:
        self.close(self.choose(amount))
        self.history.note(self.steps_done, self.open)
        self.pruned = amount
        self.before_forward(training=False)

    def search(self) -> None:
        self.prune(self.target)

    @property
    def settled(self) -> bool:
        return self.pruned == self.target

    def finish(self) -> None:
        """Training that ended early owes the rest."""
        if not self.settled:
            self.search()
        super().finish()

    def record(self) -> dict[str, Any]:
        scores = {} if self.judged is None else {"scores": self.units.by_place(self.judged)}
        return {**super().record(), **scores}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "judged": self.judged, "pruned": self.pruned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.judged = state["judged"]
        self.pruned = state.get("pruned", self.closed_amount())


def lowest(scores: Tensor) -> Tensor:
    """All gates, those with the lowest scores first, as indices."""
    return torch.argsort(scores, stable=True)
