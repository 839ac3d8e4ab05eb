"""Inputs to time a model on, and the part of its answer that is compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..inputs import example_inputs, unpadded

Inputs = dict[str, Tensor]


def make_batch(model: Any, batch: int, length: int, padding: float, device: str, dtype: torch.dtype) -> Inputs:
    """Random inputs; `padding` is the share of the last row that is padding, so that attention gets a mask."""
    inputs = example_inputs(model, batch, length)
    _pad_last_row(inputs, padding, getattr(model.config, "pad_token_id", None) or 0)
    return {
        name: value.to(device, dtype if value.is_floating_point() else value.dtype) for name, value in inputs.items()
    }


def make_prompt(model: Any, batch: int, length: int, padding: float, device: str) -> Inputs:
    """Random prompts; the last row begins with padding, as prompts of a batch do where they differ in length."""
    inputs = example_inputs(model, batch, length)
    ids, mask = inputs["input_ids"], torch.ones(batch, length, dtype=torch.long)
    mask[-1, : min(length - 1, int(length * padding))] = 0
    ids = ids.masked_fill(mask == 0, getattr(model.config, "pad_token_id", None) or 0)
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def _pad_last_row(inputs: Inputs, padding: float, pad_token: int) -> None:
    mask = inputs.get("attention_mask")
    if mask is None:
        return
    size = mask.shape[-1]
    kept = max(1, size - int(size * padding))
    mask[-1, ..., kept:] = 0
    for name, filler in (("input_ids", pad_token), ("input_values", 0)):
        if name in inputs and kept < size:
            row = inputs[name][-1]
            # the last token can be the end mark, which some heads look for
            row[..., kept - 1] = row[..., -1]
            row[..., kept:] = filler


def largest_difference(model: Any, inputs: Inputs, found: Tensor, wanted: Tensor) -> float:
    """The largest absolute difference of two outputs at positions that are not padding."""
    found, wanted = found.detach().float().cpu(), wanted.detach().float().cpu()
    valid = unpadded(model, {name: value.cpu() for name, value in inputs.items()}, wanted)
    if valid is not None:
        found, wanted = found[valid], wanted[valid]
    return float((found - wanted).abs().max())
