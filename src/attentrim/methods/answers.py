"""A loss without labels: how likely the model finds answers that are drawn from its own outputs.

The squared gradient of such a loss is the Fisher information in the strict sense, since the answers follow the model's
own distribution; a loss that compares the model with itself has no gradient at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def loss_of_own_answers(output: Any, batch: Mapping[str, Any], random: torch.Generator) -> Tensor:
    """Classes are drawn where there are logits; other outputs get noise around them. A mean over samples."""
    logits = output.get("logits")
    values: Tensor = output[0] if logits is None else logits
    values = values.float()
    mask = _mask(values, batch)
    if logits is not None and values.shape[-1] > 1:
        chances = torch.softmax(values.detach(), -1).flatten(0, -2)
        drawn = torch.multinomial(chances.cpu(), 1, generator=random).squeeze(-1).to(values.device)
        losses = nn.functional.cross_entropy(values.flatten(0, -2), drawn, reduction="none").view(values.shape[:-1])
    else:
        noise = torch.randn(values.shape, generator=random).to(values.device)
        losses = (values * noise).sum(-1)
    if mask is not None:
        losses = losses * mask
    return losses.flatten(1).sum(1).mean() if losses.dim() > 1 else losses.mean()


def _mask(values: Tensor, batch: Mapping[str, Any]) -> Tensor | None:
    mask = batch.get("attention_mask")
    if mask is None or values.dim() != 3 or mask.shape != values.shape[:-1]:
        return None
    found: Tensor = mask.to(values)
    return found
