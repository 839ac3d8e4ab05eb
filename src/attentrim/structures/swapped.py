"""Modules of a trimmed model are stock classes with one method changed.

A module that works in another way gets a generated subclass of its stock class, so isinstance checks, parameter names
and everything else about it stay.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from typing import Any

from torch import Tensor, nn


class Swapped:
    """Base of the classes that modules are given. `stock` is the class that the module had before."""

    stock: type[nn.Module]
    parameters_of_forward: tuple[str, ...]
    returned_items: int

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        kind = next(cls for cls in type(self).__mro__ if Swapped in cls.__bases__)
        return _rebuild, (kind, self.stock), self.__dict__


@functools.cache
def _generate(kind: Any, stock: Any) -> Any:
    signature = inspect.signature(stock.forward)
    body = {
        "stock": stock,
        "parameters_of_forward": tuple(signature.parameters)[1:],
        "returned_items": len(typing.get_args(signature.return_annotation)),
    }
    return type(f"{kind.__name__}{stock.__name__}", (kind, stock), body)


def _rebuild(kind: Any, stock: Any) -> Any:
    cls = _generate(kind, stock)
    return cls.__new__(cls)


def become(module: nn.Module, kind: Any) -> None:
    """Change what a module is, in place; its parameters and children stay."""
    stock: Any = type(module)
    module.__class__ = _generate(kind, getattr(module, "stock", stock))
    if "_old_forward" in module.__dict__:
        # accelerate's hooks hold on to the forward that they wrapped
        module._old_forward = types.MethodType(type(module).forward, module)  # type: ignore[assignment]


class BiasOnly(Swapped):
    """A projection without input features: all that is left of it is its bias."""

    bias: Tensor | None
    training: bool
    weight: Tensor

    def forward(self, context: Tensor) -> Tensor:
        shape = (*context.shape[:-1], max(self.weight.shape))
        output = context.new_zeros(shape) if self.bias is None else self.bias.expand(shape)
        # An empty sum: adds nothing, and lets what lies before it receive its (zero) gradients.
        return output + context.sum() if self.training else output
