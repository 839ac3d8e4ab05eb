"""The teacher that a run makes of its own dense steps: the model as they leave it, in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..duplicate import duplicate
from ..errors import MethodError
from ..sharding import loading_whole, shape_of
from ..sites import unwrap

FOLDER = "dense"
"""Where a run that distils from its own dense model keeps it."""


def frozen(teacher: Any, device: torch.device) -> Any:
    """In eval mode, without gradients."""
    return teacher.to(device).eval().requires_grad_(False)


def copy_as_teacher(model: Any) -> Any:
    return duplicate(unwrap(model), Tensor.clone).eval().requires_grad_(False)


def load_as_teacher(folder: Path, model: Any, device: torch.device) -> Any:
    """The dense model of an interrupted run."""
    if not folder.is_dir():
        raise MethodError(f"Cannot resume: the dense model to distil from is not in {folder}.")
    model = unwrap(model)
    with loading_whole():
        stored = type(shape_of(model)).from_pretrained(folder, attn_implementation=model.config._attn_implementation)
    # in memory of its own, like the teacher of a run without a break: kernels round by where weights lie
    return frozen(duplicate(stored, Tensor.clone), device)
