"""HISP at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import MethodError
from ...modes import evaluating
from ..answers import loss_of_own_answers
from ..processes import average
from ..samples import by_sample, rows_in, samples_in
from ..scored import ScoredGates, lowest

if TYPE_CHECKING:
    from . import HISP

LAST_ROUND = 0.8
"""The share of all steps after which the last round has been held."""
_TINY = torch.finfo(torch.float32).tiny


class HISPSession(ScoredGates):
    method: HISP

    def due(self) -> float:
        if self.is_dense or self.method.rounds == 1:
            return super().due()
        span = max(1.0, LAST_ROUND * self.require_steps() - self.dense_until)
        held = 1 + int((self.steps_done - self.dense_until) / span * (self.method.rounds - 1))
        amount = self.target * min(held, self.method.rounds) / self.method.rounds
        return round(amount) if self.weights is None else amount

    def choose(self, amount: float) -> Tensor:
        self.judged = self.scores()
        return self.first(lowest(self.judged.masked_fill(self.open == 0, -1.0)), amount)

    def scores(self) -> Tensor:
        """The mean over samples of |dL/dgate| per cost, with gates as they are; each place divided by its l2 norm.

        Where several kinds are ranked together, by its root mean square: places of many units would have low scores.
        """
        importance = self.importance()
        parts = (importance if self.weights is None else importance / self.weights).split(self.units.sizes)
        several = len(self.units.kinds) > 1
        norms = [part.norm() / (len(part) ** 0.5 if several else 1) for part in parts]
        return torch.cat([part / norm.clamp_min(_TINY) for part, norm in zip(parts, norms, strict=True)])

    def importance(self) -> Tensor:
        totals = torch.zeros(self.count + 1, device=self.device)
        with evaluating(self.model), torch.enable_grad():
            random = torch.Generator().manual_seed(self.seed)
            for batch in self.batches():
                gradients = self._gradients(batch, random)
                totals[:-1] += gradients.abs().sum(0)
                totals[-1] += len(gradients)
        average(totals)
        if not totals.isfinite().all():
            raise MethodError(
                "The loss or its gradients are not finite on the calibration data: no ranking is possible."
            )
        return totals[:-1] / totals[-1]

    def _gradients(self, batch: Mapping[str, Any], random: torch.Generator) -> Tensor:
        """dL/dgate for each sample, [batch, gates]. Of a model without a task head: L of its own answers."""
        gates = self.open.expand(rows_in(batch), -1).clone().requires_grad_()
        with self.gates_set(gates):
            output = self.model(**batch)
            loss = output.get("loss")
            if loss is None and output.get("logits") is not None:
                raise MethodError("HISP ranks by the loss: the calibration batches must have labels.")
            if loss is None:
                loss = loss_of_own_answers(output, batch, random)
            (gradients,) = torch.autograd.grad(loss, gates)
        return by_sample(gradients, samples_in(batch))
