"""What comes behind the transformer in a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from ..atomic import replacing
from .pooling import pooled


@dataclass(frozen=True)
class Normalize:
    """To length 1."""

    def __call__(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class Truncate:
    """To the first numbers."""

    width: int

    def __call__(self, vectors: Tensor) -> Tensor:
        return vectors[..., : self.width]


@dataclass(frozen=True)
class Dense:
    """A projection whose weights stay as they are."""

    weight: Tensor
    bias: Tensor | None
    activation: Callable[[Tensor], Tensor]

    def __call__(self, vectors: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(vectors)
        projected: Tensor = self.activation(nn.functional.linear(vectors, self.weight.to(vectors), bias))
        return projected


@dataclass(frozen=True)
class SentenceModules:
    """How token vectors become the embedding of a text, and what else a model's directory says."""

    pooling: tuple[str, ...]
    """Names in `pooling.MODES`; the results of several stand side by side."""
    steps: tuple[Dense | Normalize | Truncate, ...]
    max_length: int | None = None
    """Tokens of the longest text that is read whole."""
    lower_case: bool = False
    prompt: str = ""
    """What stands before each text unless `encode` is told otherwise."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What makes a directory of the model one of sentence-transformers, by path."""

    def __call__(self, tokens: Tensor, mask: Tensor) -> Tensor:
        vectors = pooled(tokens, mask, self.pooling)
        for step in self.steps:
            vectors = step(vectors)
        return vectors

    def width(self, hidden: int) -> int:
        """Numbers in an embedding, of a model with so many per token."""
        width = len(self.pooling) * hidden
        for step in self.steps:
            if isinstance(step, Dense):
                width = step.weight.shape[0]
            elif isinstance(step, Truncate):
                width = min(width, step.width)
        return width

    def prepared(self, text: str) -> str:
        """A text as the tokenizer gets it."""
        text = self.prompt + text
        return text.lower() if self.lower_case else text

    def write(self, directory: str | Path) -> None:
        for name, content in self.files.items():
            path = Path(directory) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as scratch:
                scratch.write_bytes(content)


def activation_named(name: str) -> nn.Module | None:
    """torch.nn.modules.activation.Tanh, by its whole name; None for what is no activation of torch."""
    found = getattr(torch.nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
    return found() if isinstance(found, type) and issubclass(found, nn.Module) else None
