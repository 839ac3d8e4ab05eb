"""Corrupted copies of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

RARE = 1e-6
"""How likely a special token is drawn, next to 1 for a word: only where there is no word at all."""


def corrupted(
    batch: Mapping[str, Any], share: float, special: Sequence[int] = (), random: torch.Generator | None = None
) -> dict[str, Any]:
    """A copy of a batch in which that share of the words are other words of the batch, chosen at random.

    Special tokens, padding among them, stay. Images and sound have random numbers added, scaled by `share`.
    """
    found = dict(batch)
    for name in ("pixel_values", "input_values"):
        if name in found:
            values: Tensor = found[name]
            noise = torch.randn(values.shape, generator=random, device=values.device, dtype=values.dtype)
            found[name] = values + share * noise
    if "input_ids" in found:
        ids: Tensor = found["input_ids"]
        words = ~torch.isin(ids, torch.tensor(special, dtype=ids.dtype, device=ids.device))
        chances = words.flatten() + RARE
        drawn = torch.multinomial(chances, ids.numel(), replacement=True, generator=random)
        chosen = torch.rand(ids.shape, generator=random, device=ids.device) < share
        found["input_ids"] = torch.where(chosen & words, ids.flatten()[drawn].view_as(ids), ids)
    return found
