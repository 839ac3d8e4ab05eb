"""Scores without training: passes over a few examples, gradients sample by sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from ...errors import MethodError
from ...modes import evaluating
from ..answers import loss_of_own_answers
from ..samples import by_sample, rows_in, samples_in
from .choosing import Chooser

ROUNDS = 200
"""Swaps in a place at most."""
CANDIDATES = 32
"""Removed units that are looked at for each swap."""


def gradients_on(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    apply: Callable[[Tensor, Tensor], None],
    gates: int,
    switches: int,
    use_labels: bool,
    random: torch.Generator,
    progress: bool = False,
) -> tuple[Tensor, Tensor]:
    """The gradients of each sample's loss: [samples, gates] and [samples, switches], on the CPU.

    A model without a task head has no labels: the loss is that of answers drawn from its own outputs.

    Args:
        apply: Puts gates [rows, gates] and switches [rows, switches] onto the model.
    """
    found: list[list[Tensor]] = []
    with evaluating(model), torch.enable_grad():
        for batch in tqdm(batches, desc="gradients", disable=None if progress else True, leave=False):
            inputs = {name: value for name, value in batch.items() if use_labels or name != "labels"}
            rows, device = rows_in(inputs), next(model.parameters()).device
            units = torch.ones(rows, gates, device=device, requires_grad=True)
            places = torch.zeros(rows, switches, device=device, requires_grad=True)
            apply(units, places)
            output = model(**inputs)
            loss = output.get("loss")
            if loss is None and use_labels and output.get("logits") is not None:
                raise MethodError("The calibration batches have no labels: set use_labels to false to do without.")
            if loss is None:
                loss = loss_of_own_answers(output, inputs, random)
            parts = torch.autograd.grad(loss, (units, places), allow_unused=True, materialize_grads=True)
            found.append([by_sample(part, samples_in(inputs)).cpu() for part in parts])
    if not found:
        raise MethodError("There is no calibration data.")
    units, places = (torch.cat(parts) for parts in zip(*found, strict=True))
    if not (units.isfinite().all() and places.isfinite().all()):
        raise MethodError("The loss or its gradients are not finite on the calibration data: no ranking is possible.")
    return units, places


def rearranged(open_gates: Tensor, gradients: Tensor, chooser: Chooser) -> Tensor:
    """Swap removed units for kept ones of the same place while that lowers the loss of removing all of them together.

    To second order that loss is |G r|² with the gradients G [samples, units of the place] and r = 1 for removed units:
    unlike the sum of scores it knows whose errors cancel.
    """
    result = open_gates.clone()
    for here in chooser.slices.values():
        part, kept = gradients[:, here].double(), result[here].bool()
        if kept.all() or not kept.any():
            continue
        total = part[:, ~kept].sum(1)
        for _ in range(ROUNDS):
            give_back, take = _best_swap(part, kept, total)
            if give_back is None or take is None:
                break
            kept[give_back], kept[take] = True, False
            total = total - part[:, give_back] + part[:, take]
        result[here] = kept.to(result)
    return result


def _best_swap(part: Tensor, kept: Tensor, total: Tensor) -> tuple[int | None, int | None]:
    """A removed unit to give back and a kept one to take, if that lowers |total|².

    The best pair, of all kept units and of the removed ones that are best given back alone.
    """
    squares, along = part.square().sum(0), part.T @ total
    gains = (squares - 2 * along).masked_fill(kept, torch.inf)
    gain, able = gains.topk(min(CANDIDATES, int((~kept).sum())), largest=False)
    added = (squares + 2 * along).masked_fill(~kept, torch.inf)
    changes = gain[:, None] + added - 2 * part[:, able].T @ part
    change, pair = changes.flatten().min(0)
    if not change < -1e-9 * total.square().sum():
        return None, None
    return int(able[pair // len(kept)]), int(pair % len(kept))
