"""Gradients of the loss in gates, sample by sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def samples_in(batch: Mapping[str, Any]) -> int:
    return len(next(value for value in batch.values() if isinstance(value, Tensor) and value.dim()))


def rows_in(batch: Mapping[str, Any]) -> int:
    """Sequences that run through the model: more than samples where each has several choices."""
    ids = batch.get("input_ids", batch.get("inputs_embeds"))
    if ids is None or "pixel_values" in batch:
        return samples_in(batch)
    return int(ids.shape[:-1].numel()) if "input_ids" in batch else int(ids.shape[:-2].numel())


def by_sample(gradients: Tensor, samples: int) -> Tensor:
    """[rows, gates] of a loss that is a mean over the batch to [samples, gates]; a sample's rows count together."""
    return gradients.float().view(samples, len(gradients) // samples, gradients.shape[-1]).sum(1) * samples
