"""Weights that an engine has spread over processes: what shape they have, and how they come together again.

Under FSDP2 a parameter is a DTensor; under DeepSpeed's ZeRO-3 it is empty, and a shard lies beside it. Gates need no
weights, so training goes on as ever; whatever copies a model goes through `tensors`, and whatever counts its sizes
through `shape_of`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .errors import UnsupportedModelError

_SHAPES: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()
"""By model that an engine trains: a plain copy on the meta device, made before the engine took hold of it."""


def keep_shape(model: nn.Module, shape: nn.Module) -> None:
    """An engine is about to take hold of `model`: `shape` is a copy of it on the meta device."""
    _SHAPES[model] = shape


def shape_of(model: Any) -> Any:
    """A plain model of the same class and shapes: `model` itself, unless an engine trains it."""
    return _SHAPES.get(model, model)


def is_sharded(model: nn.Module) -> bool:
    """Whether an engine trains a model, or ZeRO-3 had it loaded in shards."""
    return model in _SHAPES or any(hasattr(parameter, "ds_id") for parameter in model.parameters())


def full_shape(parameter: Any) -> tuple[int, ...]:
    """Of a parameter, whoever holds its shards."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def tensors(model: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """Each parameter and buffer of `shape_of(model)`, and the whole tensor that belongs there.

    Where an engine trains the model, all processes must go through it together, to its end; tensors come one by one,
    on the CPU.
    """
    shape = shape_of(model)
    if shape is model:
        if any(hasattr(module, "reshard") for module in model.modules()):
            raise UnsupportedModelError(
                f"{type(model).__name__}: fully_shard has spread its weights over processes. Copy or trim it before, "
                "or have attentrim's Trainer shard it (fsdp), which brings them together."
            )
        for tensor in chain(model.parameters(), model.buffers()):
            # ZeRO-3 shards a model while transformers loads it
            yield tensor, _whole(tensor) if hasattr(tensor, "ds_id") else tensor.detach()
        return
    module: Any
    for module in model.modules():
        if hasattr(module, "reshard"):  # FSDP2: what a forward gathered has the dtype of mixed precision
            module.reshard()
    live = dict(chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)))
    for name, tensor in chain(shape.named_parameters(), shape.named_buffers()):
        yield tensor, _whole(live[name])


def _whole(tensor: Any) -> Tensor:
    if hasattr(tensor, "full_tensor"):
        return _copied(tensor.full_tensor())
    if hasattr(tensor, "ds_id"):
        with importlib.import_module("deepspeed").zero.GatheredParameters([tensor]):
            return _copied(tensor)
    return _copied(tensor)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def parts_here(model: nn.Module) -> Iterator[Tensor]:
    """What this process holds of each parameter."""
    parameter: Any
    for parameter in model.parameters():
        if hasattr(parameter, "ds_tensor"):
            shard = parameter.ds_tensor.detach().flatten()
            before = torch.distributed.get_rank() * len(shard)
            yield shard[: max(0, parameter.ds_numel - before)]  # the last shards are filled up with anything
        else:
            yield parameter.to_local().detach() if hasattr(parameter, "to_local") else parameter.detach()


def is_finite(model: nn.Module) -> bool:
    """Whether all weights are numbers; where an engine trains the model, all processes ask and get one answer."""
    finite = all(bool(torch.isfinite(part).all()) for part in parts_here(model))
    if shape_of(model) is model:
        return finite
    answer = torch.tensor(float(finite), device=next(model.parameters()).device)
    torch.distributed.all_reduce(answer, torch.distributed.ReduceOp.MIN)
    return bool(answer)


@contextmanager
def loading_whole() -> Iterator[None]:
    """Each process loads whole models while this lasts; with ZeRO-3 transformers would load shards."""
    from transformers.integrations import deepspeed

    config = deepspeed._hf_deepspeed_config_weak_ref
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = config
