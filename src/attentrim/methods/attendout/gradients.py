"""Gradients as vectors over all parameters of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...modes import evaluating


def gradient_of(model: Any, parameters: Sequence[nn.Parameter], batches: Sequence[Mapping[str, Any]]) -> list[Tensor]:
    """Of the mean loss over the batches, in eval mode; the model's own gradients are left alone."""
    with evaluating(model), torch.enable_grad():
        loss = torch.stack([model(**batch)["loss"] for batch in batches]).mean()
        found = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    pairs = zip(found, parameters, strict=True)
    return [torch.zeros_like(parameter) if part is None else part for part, parameter in pairs]


def stored_gradient(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """A copy of what backward left in the parameters."""
    return [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone() for parameter in parameters
    ]


def turn(wanted: Sequence[Tensor], gradient: Sequence[Tensor]) -> list[Tensor]:
    """The unit vector in which `gradient` would have to turn to point more towards `wanted`."""
    wanted, gradient = _unit(wanted), _unit(gradient)
    cosine = torch.stack([(one * other).sum() for one, other in zip(wanted, gradient, strict=True)]).sum()
    return _unit([one - cosine * other for one, other in zip(wanted, gradient, strict=True)])


def _unit(tensors: Sequence[Tensor]) -> list[Tensor]:
    length = torch.stack(torch._foreach_norm(list(tensors))).norm().clamp(min=1e-12)
    return [tensor / length for tensor in tensors]


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No gradient into the weights while this lasts; gradients into masks still flow through the model."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
