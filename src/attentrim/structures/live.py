"""Gates on a live model: hooks that a copy of the model does not inherit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ControlError


class Hook:
    """A hook of ours. Copies and pickles of a model get one that does nothing, which `remove_hooks` takes off."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Inert, ()


class _Inert(Hook):
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def remove_hooks(model: nn.Module) -> None:
    """Take all hooks of ours off a model."""
    for module in model.modules():
        for hooks, with_kwargs in (
            (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs),
            (module._forward_hooks, module._forward_hooks_with_kwargs),
        ):
            for key in [key for key, hook in hooks.items() if isinstance(hook, Hook)]:
                del hooks[key]
                with_kwargs.pop(key, None)


class LiveGate(ABC):
    """What decides, while a model runs, how much of a place's units counts."""

    called = False
    """Whether it was at work since this was last set to False. No counter: a compiled layer would be compiled again
    whenever it changed."""

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether anything is switched off."""

    @abstractmethod
    def set(self, value: Any) -> None:
        """Gates of units within a place (1 open, 0 closed); how much of the place itself is removed (1 all)."""

    @abstractmethod
    def clear(self) -> None:
        """Leave nothing out."""

    def close(self, units: list[int]) -> None:
        """Leave these units out; the place itself where it is the unit."""
        self.set(True)


class FeatureGate(Hook, LiveGate):
    """Gates on the input features of a projection: one per run of `size` features, gradients flow into them.

    The hook is there only once something was set: a place that nobody gates costs nothing. It multiplies and does no
    more: in a training step on a GPU each further small operation, there and in its backward, is a launch.
    """

    def __init__(self, projection: nn.Module, units: int, size: int, where: str, noun: str) -> None:
        self.projection, self.units, self.size = projection, units, size
        self.where, self.noun = where, noun
        self.values: Tensor | None = None
        """One factor per feature: [features] or [batch, features]."""
        self.dtype: torch.dtype | None = None
        """Of the features, as last seen."""
        self._hooked = False

    @property
    def active(self) -> bool:
        return self.values is not None

    def set(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            device = next(self.projection.parameters()).device
            value = torch.tensor(value, dtype=torch.float32, device=device)
        if value.dim() not in (1, 2) or value.shape[-1] != self.units:
            raise ControlError(
                f"{self.where} has {self.units} {self.noun}: gates must be [{self.units}] or [batch, {self.units}]. "
                f"Got {list(value.shape)} instead."
            )
        self.put(spread(value, self.size))

    def put(self, values: Tensor) -> None:
        """One factor per feature: what `set` ends with."""
        self.values = values
        if not self._hooked:
            self.projection.register_forward_pre_hook(self)
            self._hooked = True

    def clear(self) -> None:
        self.values = None

    def close(self, units: list[int]) -> None:
        gates = torch.ones(self.units, device=next(self.projection.parameters()).device)
        gates[units] = 0.0
        self.put(spread(gates, self.size))

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> Any:
        values, features = self.values, args[0]
        if values is None:
            return None
        self.called = True
        if values.dtype is not features.dtype:
            # noted, so that from the next step on all gates are converted at once
            self.dtype = features.dtype
            values = values.to(features.dtype)
        if values.dim() == 2:
            values = values.view(values.shape[0], *(1,) * (features.dim() - 2), values.shape[1])
        return (features * values, *args[1:])


def spread(gates: Tensor, size: int) -> Tensor:
    """One value per unit to one per feature: each is repeated `size` times along the last dimension."""
    return gates if size == 1 else gates.unsqueeze(-1).expand(*gates.shape, size).flatten(-2)


class LayerSkip(Hook, LiveGate):
    """Mixes a layer's input into its output; with all of it, the hidden states pass the layer by.

    The layer still runs, so the graph is the same in every step and no parameter goes without a gradient.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.share: Tensor | None = None
        self._hooked = False

    @property
    def active(self) -> bool:
        return self.share is not None

    def set(self, value: Any) -> None:
        device = next(self.layer.parameters()).device
        self.share = value if isinstance(value, Tensor) else torch.tensor(float(value), device=device)
        if not self._hooked:
            # first of all hooks: transformers records hidden states in a hook of its own, and must see what passes on
            self.layer.register_forward_hook(self, with_kwargs=True, prepend=True)
            self._hooked = True

    def clear(self) -> None:
        self.share = None

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if self.share is None:
            return output
        self.called = True
        before = args[0] if args else kwargs["hidden_states"]
        after = output if isinstance(output, Tensor) else output[0]
        share = self.share.to(after)
        if share.dim():  # one per sequence
            share = share.view(-1, *(1,) * (after.dim() - 1))
        mixed = torch.lerp(after, before, share)
        return mixed if isinstance(output, Tensor) else (mixed, *output[1:])
