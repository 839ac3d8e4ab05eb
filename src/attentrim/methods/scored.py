"""Gates that are closed in one go, or in a few rounds, by a choice: what Random, HISP and SMP have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from .gates import GateSession


class ScoredGates(GateSession):
    """Closes heads at set steps. What it closes stays closed; the weights go on learning without it."""

    def choose(self, count: int) -> Tensor:
        """The gates to close, `count` in all, as indices."""
        raise NotImplementedError

    def search(self) -> None:
        self.prune(self.removals(self.method.target_sparsity or 0.0))

    def prune(self, count: int) -> None:
        self.close(self.choose(count))
        self.history.note(self.taken, self.open)

    def due(self) -> int | None:
        """How many gates must be closed by now; None where nothing has begun."""
        return None if self.is_dense else self.removals(self.method.target_sparsity or 0.0)

    def arm(self, training: bool) -> None:
        # just before the forward, and not in step(): the weights of the last step are in by then
        if training:
            due = self.due()
            if due is not None and int((self.open == 0).sum()) < due:
                self.prune(due)
        super().arm(training)

    @property
    def settled(self) -> bool:
        return int((self.open == 0).sum()) == self.removals(self.method.target_sparsity or 0.0)

    def finish(self) -> None:
        """Training that ended early owes the rest."""
        if not self.settled:
            self.search()
        super().finish()


def lowest(scores: Tensor, count: int) -> Tensor:
    """Indices of the `count` lowest scores."""
    return torch.argsort(scores, stable=True)[:count]
