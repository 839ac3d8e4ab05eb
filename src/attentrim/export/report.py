"""What an export says about itself, and the error where it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import AttentrimError

Inputs = dict[str, Tensor]
Axes = dict[str, dict[int, str]]
Shapes = dict[str, tuple[int, ...]]


class ExportError(AttentrimError):
    """A model that cannot be exported, or whose export does not answer like it."""


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how it compared with the PyTorch model."""

    path: str
    model_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    dynamic_axes: Axes
    """By input, as the file has them."""
    traced_shapes: Shapes
    checked_shapes: tuple[Shapes, ...]
    """The inputs of each comparison: padded on the right, padded on the left, and one short row."""
    max_abs_difference: float
    """The worst of all comparisons, at positions that are not padding."""
    mean_abs_difference: float
    """Of the output and the comparison that differed most."""
    largest_output: float
    """The largest absolute value of the output that differed so."""
    bytes: int
    """Graph and weights."""
    quantize: str | None = None
    """"int8", where the file is quantised; the differences are then those of the quantised file."""
    bytes_float: int | None = None
    """Of a quantised file: its size before."""
    linear_in_float: int | None = None
    """Of a quantised file: linear layers that stay in float, since 8 bits cannot hold their inputs."""


def shapes_of(inputs: Inputs) -> Shapes:
    return {name: tuple(value.shape) for name, value in inputs.items()}


def name_of(model: Any) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"
