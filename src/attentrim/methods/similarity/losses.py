"""What the calibration data suffers: the loss where it has labels, else the distance to the dense outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...distillation import IGNORED
from ...distillation.loss import distillation_loss
from ...errors import MethodError
from ...modes import evaluating
from ..processes import average, processes
from ..samples import samples_in


class Judge:
    """Runs the calibration data through the model as it is. The first time, the model must be dense."""

    def __init__(self, model: Any, batches: Sequence[Mapping[str, Any]]) -> None:
        self.model, self.batches = model, batches
        self._dense: list[Any] = []
        """The dense model's outputs, by batch, where there are no labels."""
        if not batches:
            raise MethodError("There is no calibration data.")

    @torch.no_grad()
    def loss(self) -> float:
        sums, first = torch.zeros(2, dtype=torch.float64), not self._dense
        with evaluating(self.model):
            for number, batch in enumerate(self.batches):
                output = self.model(**batch)
                loss = output.get("loss")
                if loss is None and first:
                    self._dense.append(_answer(output))
                if loss is None:
                    loss = _distance(_answer(output), self._dense[number], batch)
                weight = _weight(batch)
                sums += torch.tensor([float(loss) * weight, weight], dtype=torch.float64)
        if processes() > 1:
            sums = average(sums.to(self.model.device))
        total, count = sums.tolist()
        return total / count if math.isfinite(total) else math.inf


def _weight(batch: Mapping[str, Any]) -> float:
    """Of a batch's mean: tokens with a label, or samples."""
    labels = batch.get("labels")
    return float((labels != IGNORED).sum()) if labels is not None and labels.dim() > 1 else float(samples_in(batch))


def _answer(output: Any) -> dict[str, Tensor]:
    """The logits, or the first output of a model without a task head."""
    logits = output.get("logits")
    return {"states": output[0]} if logits is None else {"logits": logits}


def _distance(answer: Mapping[str, Tensor], dense: Mapping[str, Tensor], batch: Mapping[str, Any]) -> Tensor:
    if "logits" in answer:
        return distillation_loss(answer, dense, batch, logits=1.0, temperature=1.0)
    states = {name: {"hidden_states": (part["states"],)} for name, part in (("own", answer), ("dense", dense))}
    return distillation_loss(states["own"], states["dense"], batch, logits=0.0, hidden=1.0)
