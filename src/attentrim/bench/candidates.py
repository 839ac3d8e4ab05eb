"""Everything that is timed: each model in each backend, and the rivals made from the dense one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from ..cost import flops
from ..errors import AttentrimError
from .backends import has_sdpa, place
from .rivals import make_rival
from .settings import INT8, PLAIN

Pair = tuple[str, str]
"""(backend, name of a model or rival)"""


@dataclass
class Candidates:
    models: dict[str, Any]
    """"model", and before it "against" where there is one."""
    backends: Sequence[str]
    rivals: Sequence[str]
    made: dict[str, Any] = field(default_factory=dict)
    """Rivals, on the CPU."""
    refused: dict[str, str] = field(default_factory=dict)
    """Rivals that could not be made, and why."""
    placed: dict[str, Any] = field(default_factory=dict)
    """Models and rivals, on the device and in the dtype of the rows that are measured next."""
    device: str = "cpu"
    dtype: str = "float32"

    @property
    def dense(self) -> str:
        """The model that rivals are made from and speed-ups refer to."""
        return next(iter(self.models))

    @property
    def plain_backend(self) -> str:
        """The backend of the rivals: the first that is plain PyTorch, and that the model has."""
        plain = PLAIN if has_sdpa(self.models[self.dense]) else ("eager",)
        return next((backend for backend in self.backends if backend in plain), "sdpa")

    @property
    def pairs(self) -> list[Pair]:
        """In the order of their turns."""
        return [*product(self.backends, self.models), *((self.plain_backend, rival) for rival in self.rivals)]

    @property
    def decoding_pairs(self) -> list[Pair]:
        """What generates: the models, in plain PyTorch."""
        return [*product((backend for backend in self.backends if backend in PLAIN), self.models)]

    def reference(self, backend: str) -> Pair:
        """What the speed-up of a candidate refers to: of an int8 one, the dense model in float."""
        if "against" not in self.models:
            return self.backends[0], "model"
        floats = [other for other in self.backends if other != INT8]
        if backend == INT8 and floats:
            backend = "onnx" if "onnx" in floats else floats[0]
        return backend, "against"

    def make_rivals(self, announce: Callable[[str], object]) -> None:
        for name in self.rivals:
            announce(name)
            try:
                self.made[name] = make_rival(name, self.models[self.dense], self.models["model"], self.plain_backend)
            except Exception as error:
                self.refused[name] = in_one_line(error)

    def move(self, device: str, dtype: str) -> None:
        """All that is timed next runs on this device, in this dtype."""
        self.device, self.dtype = device, dtype
        self.placed = {name: place(model, device, self.weights) for name, model in self.models.items()}
        for name, rival in self.made.items():
            self.placed[name] = rival if name == "int8" else place(rival, device, self.weights)

    @property
    def weights(self) -> torch.dtype:
        return torch.float32 if self.dtype == "tf32" else getattr(torch, self.dtype)

    def source(self, name: str) -> Any:
        """The model itself; of a rival, the dense one."""
        return self.models.get(name, self.models[self.dense])

    def flops(self, batch: int, length: int) -> dict[str, int]:
        """By name. int8 makes as many products as the dense model."""
        found = {name: flops(model, batch, length) for name, model in self._counted().items()}
        return {**dict.fromkeys(self.rivals, found[self.dense]), **found}

    def parameters(self, name: str) -> int | None:
        model = self.models[self.dense] if name == "int8" else self._counted().get(name)
        return None if model is None else sum(parameter.numel() for parameter in model.parameters())

    def _counted(self) -> dict[str, Any]:
        return {**self.models, **{name: rival for name, rival in self.made.items() if name != "int8"}}


def in_one_line(error: Exception) -> str:
    """Without the name of our own errors, which explain themselves."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if isinstance(error, AttentrimError) else f"{type(error).__name__}: {text}"
