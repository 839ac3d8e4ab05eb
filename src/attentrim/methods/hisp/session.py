"""HISP at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import MethodError
from ...modes import evaluating
from ..processes import average
from ..scored import ScoredGates, lowest

if TYPE_CHECKING:
    from . import HISP

LAST_ROUND = 0.8
"""The share of all steps after which the last round has been held."""


class HISPSession(ScoredGates):
    method: HISP

    def due(self) -> int:
        if self.is_dense or self.method.rounds == 1:
            return super().due()
        span = max(1.0, LAST_ROUND * self.require_steps() - self.dense_until)
        held = 1 + int((self.steps_done - self.dense_until) / span * (self.method.rounds - 1))
        return round(self.target * min(held, self.method.rounds) / self.method.rounds)

    def choose(self, count: int) -> Tensor:
        self.judged = self.scores()
        return lowest(self.judged.masked_fill(self.open == 0, -1.0), count)

    def scores(self) -> Tensor:
        """The mean over samples of |dL/dgate|, with gates as they are; each site divided by its l2 norm."""
        parts = self.importance().split(self.units.sizes)
        return torch.cat([part / part.norm().clamp_min(torch.finfo(part.dtype).tiny) for part in parts])

    def importance(self) -> Tensor:
        totals = torch.zeros(self.count + 1, device=self.device)
        with evaluating(self.model), torch.enable_grad():
            for batch in self.batches():
                gradients = self._gradients(batch)
                totals[:-1] += gradients.abs().sum(0)
                totals[-1] += len(gradients)
        average(totals)
        if not totals.isfinite().all():
            raise MethodError(
                "The loss or its gradients are not finite on the calibration data: no ranking is possible."
            )
        return totals[:-1] / totals[-1]

    def _gradients(self, batch: Mapping[str, Any]) -> Tensor:
        """dL/dgate for each sample, [batch, gates]."""
        rows, samples = _rows(batch), _samples(batch)
        gates = self.open.expand(rows, -1).clone().requires_grad_()
        with self.gates_set(gates):
            loss = self.model(**batch).loss
            if loss is None:
                raise MethodError("HISP ranks heads by the loss: the calibration batches must have labels.")
            (gradients,) = torch.autograd.grad(loss, gates)
        # the loss is a mean over the batch; where a sample has several rows (one per choice), they count together
        return gradients.float().view(samples, -1, self.count).sum(1) * samples


def _samples(batch: Mapping[str, Any]) -> int:
    return len(next(value for value in batch.values() if isinstance(value, Tensor) and value.dim()))


def _rows(batch: Mapping[str, Any]) -> int:
    """Sequences that run through the model: more than samples where each has several choices."""
    ids = batch.get("input_ids", batch.get("inputs_embeds"))
    if ids is None or "pixel_values" in batch:
        return _samples(batch)
    return int(ids.shape[:-1].numel()) if "input_ids" in batch else int(ids.shape[:-2].numel())
