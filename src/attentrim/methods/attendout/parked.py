"""Several networks that train in one module: weights and optimiser state of those that wait are parked outside."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor, nn

OptimiserState = defaultdict[Tensor, Any]
"""By parameter, as torch keeps it."""


class ParkedNetwork:
    """A network beside the one in the module. It shares the module, the optimiser and its schedule.

    with defender.swapped_in(optimizer):
        loss.backward()
        optimizer.step()        # its own weights, with its own optimiser state
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.weights = [parameter.detach().clone() for parameter in parameters]
        self.state: OptimiserState = defaultdict(dict)

    @contextmanager
    def swapped_in(self, optimizer: Any = None) -> Iterator[None]:
        """Its weights (and optimiser state) are in the module while this lasts."""
        self._swap(optimizer)
        try:
            yield
        finally:
            self._swap(optimizer)

    def _swap(self, optimizer: Any) -> None:
        for place, parameter in enumerate(self.parameters):
            parameter.data, self.weights[place] = self.weights[place], parameter.data
        if optimizer is not None:
            inner = torch_optimizer(optimizer)
            inner.state, self.state = self.state, inner.state

    def copy_from_module(self, optimizer: Any) -> None:
        """Take over the weights and the optimiser state of the network in the module."""
        torch._foreach_copy_(self.weights, [parameter.detach() for parameter in self.parameters])
        self.state = _copied(torch_optimizer(optimizer).state)

    def copy_to_module(self, optimizer: Any) -> None:
        """Put the weights and the optimiser state of this network into the module."""
        with torch.no_grad():
            torch._foreach_copy_([parameter.detach() for parameter in self.parameters], self.weights)
        torch_optimizer(optimizer).state = _copied(self.state)

    def state_dict(self) -> dict[str, Any]:
        return {
            "weights": [weight.cpu() for weight in self.weights],
            "optimizer": [_on_cpu(self.state.get(parameter, {})) for parameter in self.parameters],
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for weight, value in zip(self.weights, saved["weights"], strict=True):
            weight.copy_(value)
        pairs = zip(self.parameters, saved["optimizer"], strict=True)
        self.state = defaultdict(dict, {parameter: _beside(parameter, state) for parameter, state in pairs if state})


def torch_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """The torch optimiser inside accelerate's."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def _copied(state: OptimiserState) -> OptimiserState:
    copies = {key: {name: _clone(value) for name, value in values.items()} for key, values in state.items()}
    return defaultdict(dict, copies)


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}


def _beside(parameter: nn.Parameter, state: Mapping[str, Any]) -> dict[str, Any]:
    """State on the parameter's device; counters of steps stay where the optimiser keeps them, on the CPU."""
    return {
        name: value.to(parameter.device) if isinstance(value, Tensor) and value.dim() else value
        for name, value in state.items()
    }


class RandomState:
    """The state of all ordinary random numbers, so that another network can train with the same noise."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.python, self.numpy, self.torch = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        random.setstate(self.python)
        numpy.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, self.device)
