"""Gates that are closed in one go, or in a few rounds, by a choice: what Random, HISP and SMP have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .gates import GateSession


class ScoredGates(GateSession):
    """Closes gates at the start of set steps. What it closes stays closed; the weights go on learning without it."""

    pruned = 0
    """How many gates are closed."""
    judged: Tensor | None = None
    """The scores that the last choice went by, one per gate; None where it went by none."""

    def choose(self, count: int) -> Tensor:
        """The gates to close, `count` in all, as indices."""
        raise NotImplementedError

    @property
    def target(self) -> int:
        return self.removals(self.method.target_sparsity or 0.0)

    def due(self) -> int:
        """How many gates must be closed by now."""
        return 0 if self.is_dense else self.target

    def start_step(self) -> None:
        super().start_step()
        due = self.due()
        if self.pruned < due:
            self.prune(due)

    def prune(self, count: int) -> None:
        self.close(self.choose(count))
        self.history.note(self.steps_done, self.open)
        self.pruned = count
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
        scores = {} if self.judged is None else {"scores": self.units.by_site(self.judged)}
        return {**super().record(), **scores}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "judged": self.judged}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.judged = state["judged"]
        self.pruned = int((self.open == 0).sum())


def lowest(scores: Tensor, count: int) -> Tensor:
    """Indices of the `count` lowest scores."""
    return torch.argsort(scores, stable=True)[:count]
