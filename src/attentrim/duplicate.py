"""Copy a model while changing where its tensors live."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .control import detach


def duplicate(model: nn.Module, convert: Callable[[Tensor], Tensor]) -> Any:
    """A copy of `model`, free of any control, whose parameters and buffers are `convert`ed rather than copied."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(convert(parameter.detach()), parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = convert(buffer.detach())
    copied = copy.deepcopy(model, memo)
    detach(copied)
    return copied
