"""What several processes that train together share, and what a loss scaler does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")


def loss_scale(scaler: Any) -> float:
    """What a GradScaler multiplied the loss by; 1 without one."""
    return float(scaler.get_scale()) if scaler is not None else 1.0


def rank() -> int:
    """Of this process among those that train together."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def processes() -> int:
    """How many train together."""
    distributed = torch.distributed
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def average(tensor: torch.Tensor) -> torch.Tensor:
    """The mean over processes, in place; each process saw its own batches."""
    if processes() > 1:
        torch.distributed.all_reduce(tensor)
        tensor /= processes()
    return tensor


def highest(value: int, device: torch.device) -> int:
    """The largest that any process has."""
    if processes() == 1:
        return value
    found = torch.tensor(value, device=device)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MAX)
    return int(found)


def from_first(make: Callable[[], Value]) -> Value:
    """What the first process makes, for all: the others must not measure something else."""
    if processes() == 1:
        return make()
    found: list[Any] = [make() if rank() == 0 else None]
    torch.distributed.broadcast_object_list(found, src=0)
    return found[0]  # type: ignore[no-any-return]
