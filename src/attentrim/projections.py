"""Linear layers and transformers' Conv1D alike: weights as [output, input]."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .sharding import full_shape


def is_conv1d(projection: nn.Module) -> bool:
    """transformers' Conv1D is a Linear whose weight is stored the other way round."""
    return any(cls.__name__ == "Conv1D" for cls in type(getattr(projection, "base_layer", projection)).__mro__)


def is_projection(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or is_conv1d(module)


def features(projection: nn.Module) -> tuple[int, int]:
    """(input, output) features, read off the weight."""
    first, second = full_shape(getattr(projection, "base_layer", projection).weight)
    return (first, second) if is_conv1d(projection) else (second, first)


def weight_and_bias(projection: Any) -> tuple[Tensor, Tensor | None]:
    return projection.weight.t() if is_conv1d(projection) else projection.weight, projection.bias


def select_outputs(projection: nn.Module, index: Tensor) -> None:
    """Keep some output features."""
    weight, bias = weight_and_bias(projection)
    index = index.to(weight.device)
    replace(projection, weight.index_select(0, index), None if bias is None else bias.index_select(0, index))


def select_inputs(projection: nn.Module, index: Tensor) -> None:
    """Keep some input features."""
    weight, bias = weight_and_bias(projection)
    replace(projection, weight.index_select(1, index.to(weight.device)), bias)


def replace(projection: Any, weight: Tensor, bias: Tensor | None) -> None:
    """Give a projection another weight and bias, of any shape."""
    trainable = projection.weight.requires_grad
    outputs, inputs = weight.shape
    if is_conv1d(projection):
        projection.nx, projection.nf, weight = inputs, outputs, weight.t()
    else:
        projection.in_features, projection.out_features = inputs, outputs
    projection.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format), trainable)
    if bias is not None:
        projection.bias = nn.Parameter(bias.detach().clone(), trainable)


def widen_outputs(projection: nn.Module, rows: int) -> None:
    """Add output features that are zero, up to `rows`."""
    weight, bias = weight_and_bias(projection)
    more = rows - weight.shape[0]
    padded = nn.functional.pad(weight, (0, 0, 0, more))
    replace(projection, padded, None if bias is None else nn.functional.pad(bias, (0, more)))


def widen_inputs(projection: nn.Module, columns: int) -> None:
    """Add input features that count for nothing, up to `columns`."""
    weight, bias = weight_and_bias(projection)
    replace(projection, nn.functional.pad(weight, (0, columns - weight.shape[1])), bias)


def silence_inputs(projection: Any, index: Tensor) -> None:
    """Have some input features count for nothing."""
    weight = projection.weight
    weight.index_fill_(0 if is_conv1d(projection) else 1, index.to(weight.device), 0.0)
