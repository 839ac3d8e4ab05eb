"""Copy a model while changing where its tensors live; weights that are spread over processes come together in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .control import detach
from .sharding import is_sharded, keep_shape, shape_of, tensors
from .sites import unwrap


def duplicate(model: nn.Module, convert: Callable[[Tensor], Tensor]) -> Any:
    """A copy of `model`, free of any control, whose parameters and buffers are `convert`ed rather than copied.

    Where an engine (FSDP2, DeepSpeed) trains the model, all processes must ask for the copy.
    """
    memo: dict[int, Any] = {}
    for tensor, whole in tensors(model):
        converted = convert(whole)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(converted, tensor.requires_grad) if is_parameter else converted
    copied = copy.deepcopy(shape_of(model), memo)
    detach(copied)
    return copied


def skeleton(model: nn.Module) -> Any:
    """A copy of a model on the meta device: its shapes without its weights."""
    return duplicate(shape_of(model), lambda tensor: tensor.to("meta"))


def prepare_to_shard(model: Any) -> None:
    """Call before an engine shards a model: remembers its unsharded shape."""
    inner = unwrap(model)
    if shape_of(inner) is inner:
        keep_shape(inner, skeleton(inner))


def whole(model: Any, everywhere: bool = True) -> Any:
    """The model itself; where an engine trains it, a plain copy on the CPU with all of its weights.

    Args:
        everywhere: Whether each process gets one. If not, the first does, and the others get None: a model may be too
            large to be whole in all of them. They must ask for it all the same.
    """
    inner = unwrap(model)
    if not is_sharded(inner):
        return model
    if everywhere or torch.distributed.get_rank() == 0:
        return duplicate(inner, lambda tensor: tensor).train(inner.training)
    for _ in tensors(inner):
        pass
    return None
