"""The file in onnxruntime beside the model, at other shapes than those it was traced with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..inputs import example_inputs, unpadded
from .report import Axes, ExportError, Inputs, shapes_of
from .writing import Graph, first_cause

LONGER = 3
"""How many more tokens than traced the comparison takes."""
Case = tuple[str, Inputs]
"""On which side inputs are padded, and the inputs."""


@dataclass(frozen=True)
class Difference:
    """How far one output of the file is from the model's."""

    output: str
    case: str
    absolute: float
    mean: float
    largest: float

    @property
    def relative(self) -> float:
        relative = self.absolute / max(1.0, self.largest)
        return math.inf if math.isnan(relative) else relative

    def __lt__(self, other: Difference) -> bool:
        return self.relative < other.relative

    def __str__(self) -> str:
        return (
            f"its output {self.output!r} is off by {self.absolute:.3g} on {self.case}, "
            f"which is {self.relative:.3g} of max(1, its largest value {self.largest:.3g})"
        )


def cases_for(model: Any, batch: int, length: int, *, padded: bool) -> list[Case]:
    """Inputs of other shapes than the trace: more and longer rows, padded on either side, and one short row."""
    sizes = [(side, batch + 1, length + LONGER) for side in (("right", "left") if padded else ("none",))]
    sizes.append(("none", 1, length // 2))
    return [(side, _uneven(example_inputs(model, rows, tokens, padding=side))) for side, rows, tokens in sizes]


def _uneven(inputs: Inputs) -> Inputs:
    """Let sizes differ that need not agree."""
    if "decoder_input_ids" in inputs:
        inputs["decoder_input_ids"] = inputs["decoder_input_ids"][:, 1:]
    if "pixel_values" in inputs and "input_ids" in inputs:
        inputs["pixel_values"] = inputs["pixel_values"].repeat(2, 1, 1, 1)
    return {name: value.repeat(1, 2, 1) if value.dim() == 3 else value for name, value in inputs.items()}


def open_session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExportError(f"onnxruntime cannot load the exported file: {first_cause(error)}") from error


def checked_axes(session: Any, wanted: Axes) -> Axes:
    """The dynamic axes of the file's inputs; none of those wanted may be a constant."""
    found = {
        entry.name: {axis: size for axis, size in enumerate(entry.shape) if isinstance(size, str)}
        for entry in session.get_inputs()
    }
    for name, axes in wanted.items():
        fixed = [label for axis, label in axes.items() if axis not in found.get(name, {})]
        if fixed:
            raise ExportError(f"The exporter made the {fixed[0]} size of the input {name!r} a constant.")
    return found


def worst_difference(graph: Graph, session: Any, cases: Sequence[Case]) -> Difference:
    return max(_compare(graph, session, inputs, padding) for padding, inputs in cases)


def _compare(graph: Graph, session: Any, inputs: Inputs, padding: str) -> Difference:
    """The worst difference of any output, at the positions that are not padding."""
    case = f"inputs of shape {shapes_of(inputs)} with padding {padding}"
    with torch.no_grad():
        expected = graph(*inputs.values())
    try:
        results = session.run(list(expected), {name: value.numpy() for name, value in inputs.items()})
    except Exception as error:
        raise ExportError(f"onnxruntime cannot run the exported file on {case}: {first_cause(error)}") from error
    differences = []
    for (name, wanted), result in zip(expected.items(), results, strict=True):
        found = torch.from_numpy(result)
        if found.shape != wanted.shape:
            raise ExportError(
                f"The output {name!r} of the exported file is {list(found.shape)} where the model's is "
                f"{list(wanted.shape)}, on {case}."
            )
        valid = unpadded(graph.model, inputs, wanted)
        if valid is not None:
            found, wanted = found[valid], wanted[valid]
        off = (found - wanted).abs()
        differences.append(Difference(name, case, float(off.max()), float(off.mean()), float(wanted.abs().max())))
    return max(differences)
