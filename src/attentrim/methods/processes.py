"""What several processes that train together share, and what a loss scaler does."""

from __future__ import annotations

from typing import Any

import torch


def loss_scale(scaler: Any) -> float:
    """What a GradScaler multiplied the loss by; 1 without one."""
    return float(scaler.get_scale()) if scaler is not None else 1.0


def rank() -> int:
    """Of this process among those that train together."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def average(tensor: torch.Tensor) -> torch.Tensor:
    """The mean over processes, in place; each process saw its own batches."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        distributed.all_reduce(tensor)
        tensor /= distributed.get_world_size()
    return tensor
