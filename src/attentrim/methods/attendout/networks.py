"""The generators of a model, one per stack of layers, and what each sees of an input."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...control import Control
from ...errors import MethodError
from ...sites import Site
from .generator import Generator

if TYPE_CHECKING:
    from . import AttendOut


class Networks(nn.ModuleList):
    """All that learns beside the model: the generators, and their own embeddings where they have them."""

    def __init__(self, generators: Mapping[str, Generator], entrances: Mapping[str, Entrance]) -> None:
        super().__init__([*generators.values(), *entrances.values()])
        self.generators, self.entrances = dict(generators), dict(entrances)
        """By stack."""

    @classmethod
    def of(cls, method: AttendOut, control: Control, sites: Sequence[Site], seed: int) -> Networks:
        """Made for a model, on the CPU."""
        random = torch.Generator().manual_seed(seed)
        entrances: dict[str, Entrance] = {}
        generators: dict[str, Generator] = {}
        for stack in dict.fromkeys(site.stack for site in sites):
            inside = [site for site in sites if site.stack == stack]
            entrances[stack] = Entrance(control, stack, inside, own=method.embedding == "own")
            generators[stack] = Generator(
                entrances[stack].features,
                width=method.generator_width,
                prior=method.prior,
                unit=method.unit,
                residual=method.residual,
                random=random,
            )
        return cls(generators, entrances)


class Entrance(nn.Module):
    """What the generator of a stack sees of an input: what enters the stack's first layer, or its own embedding.

    `seen` is what it takes to see it again: hidden states, or the arguments of the model's embedding.
    """

    def __init__(self, control: Control, stack: str, sites: Sequence[Site], own: bool) -> None:
        super().__init__()
        self.features = sites[0].width
        self.embedding: nn.Module | None = None
        self._arguments: Any = None
        self._action: Callable[[str, Any], None] | None = None
        model = control.model
        if own:
            module = _embedding_of(model, stack)
            self.features = getattr(model.get_input_embeddings(), "embedding_dim", sites[0].width)
            # deepcopy keeps ties to nothing outside, so these weights are the generator's alone
            self.embedding = copy.deepcopy(module).float().eval().requires_grad_()
            control.on_call(module, self._keep_arguments)
        # the first layer that runs is the entrance: some models skip layers at random while they train
        for block in dict.fromkeys(site.layer for site in sites):
            control.on_call(model.get_submodule(block), partial(self._on_layer, stack))

    def on_input(self, action: Callable[[str, Any], None]) -> None:
        """Call `action(stack, seen)` at each layer of the stack."""
        self._action = action

    def features_of(self, seen: Any) -> Tensor:
        if self.embedding is None:
            hidden: Tensor = seen
        else:
            args, kwargs = seen
            hidden = self.embedding(*args, **kwargs)
        return hidden.float()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _keep_arguments(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._arguments = (args, kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _on_layer(self, stack: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._action is None:
            return
        if self.embedding is not None and self._arguments is None:
            raise MethodError(f"The model does not call the embedding of {stack} as a module: set embedding='model'.")
        hidden = args[0] if args else kwargs["hidden_states"]
        self._action(stack, hidden.detach() if self.embedding is None else self._arguments)


def _embedding_of(model: Any, stack: str) -> nn.Module:
    modules = dict(model.named_modules(remove_duplicate=False))
    owners = (stack.rpartition(".")[0], stack)
    for place in (f"{owner}.{name}".strip(".") for owner in owners for name in ("embeddings", "embed_tokens")):
        if place in modules:
            return modules[place]  # type: ignore[no-any-return]
    try:
        found: nn.Module = model.get_input_embeddings()
    except (NotImplementedError, AttributeError) as error:
        raise MethodError(
            f"A {type(model).__name__} has no embedding that a generator could copy: set embedding='model'."
        ) from error
    return found
