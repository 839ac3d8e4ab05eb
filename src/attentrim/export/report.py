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
    """A model that cannot be exported, or whose export gives other outputs."""


@dataclass(frozen=True)
class ExportReport:
    """What was exported, and how it compares with the PyTorch model."""

    path: str
    model_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    dynamic_axes: Axes
    """The dynamic axes of each input of the file."""
    traced_shapes: Shapes
    checked_shapes: tuple[Shapes, ...]
    """The inputs of each comparison: padded on the right, padded on the left, and one short row."""
    max_abs_difference: float
    """The largest difference in all comparisons, without padding."""
    mean_abs_difference: float
    """The mean difference of the output that differed most."""
    largest_output: float
    """The largest absolute value of that output."""
    bytes: int
    """The size of graph and weights."""
    quantize: str | None = None
    """"int8" if the file is quantised; the differences are then those of the quantised file."""
    bytes_float: int | None = None
    """For a quantised file: its size before quantisation."""
    linear_in_float: int | None = None
    """For a quantised file: how many linear layers stay in float, because their inputs do not fit into 8 bits."""


def shapes_of(inputs: Inputs) -> Shapes:
    return {name: tuple(value.shape) for name, value in inputs.items()}


def name_of(model: Any) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"
