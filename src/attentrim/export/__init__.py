"""Export a model to ONNX with dynamic batch and sequence, and compare the file with the model in onnxruntime.

    report = export_onnx(model, "exported")
    session = onnxruntime.InferenceSession(report.path)
    session.run(None, dict(tokenizer(texts, return_tensors="np", padding=True)))

    export_onnx(model, "exported", quantize="int8")     # a quarter of the size, slightly other outputs: see the report

The inputs of the file are those that a tokenizer or processor makes. Token types are among them only if the model has
several (`type_vocab_size` above 1). Decoders are exported without a cache.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..atomic import staged
from ..inputs import example_inputs
from ..sites import unwrap
from . import checking, quantizing, refusals, writing
from .report import ExportError, ExportReport, name_of, shapes_of

__all__ = ["ExportError", "ExportReport", "export_onnx"]

FILE = "model.onnx"


def export_onnx(
    model: Any,
    output_dir: str | Path,
    *,
    batch: int = 2,
    length: int = 16,
    tolerance: float = 1e-4,
    quantize: str | None = None,
) -> ExportReport:
    """Write `model` to `output_dir`/model.onnx, and check it at other shapes than it was traced with.

    `batch` and `length` (tokens of text, frames of speech) are the shapes of the trace; the file accepts any. Every
    output must agree within `tolerance` · max(1, its largest value). Otherwise an `ExportError` is raised and nothing
    is written. The model itself is not changed.

    With `quantize="int8"` the checked file is then quantised: linear layers and embeddings to 8 bits, activations at
    run time. Linear layers whose inputs do not fit into 8 bits stay in float. No tolerance applies; the report
    contains the largest difference from the model.
    """
    model = unwrap(model)
    refusals.refuse_arguments(model, output_dir, batch, length, tolerance, quantize)
    refusals.refuse_model(model)
    refusals.require_packages()
    folder = Path(output_dir)
    with staged(folder) as stage:
        if quantize is None:
            return _write_and_check(model, stage / FILE, folder, batch, length, tolerance)
        source = stage / "float" / FILE
        source.parent.mkdir()
        report = _write_and_check(model, source, folder, batch, length, tolerance)
        report = _quantize(model, source, stage / FILE, report, batch, length)
        shutil.rmtree(source.parent)
        return report


def _write_and_check(model: Any, path: Path, folder: Path, batch: int, length: int, tolerance: float) -> ExportReport:
    """Written to `path`, and to be moved to `folder` once it is known to be right."""
    graph = writing.Graph(writing.twin_of(model), tuple(example_inputs(model)))
    traced = example_inputs(model, batch, length, padding="right")
    writing.write(graph, traced, path)
    session = checking.open_session(path)
    axes = checking.checked_axes(session, writing.dynamic_axes(traced))
    cases = checking.cases_for(model, batch, length, padded="attention_mask" in traced)
    worst = checking.worst_difference(graph, session, cases)
    if not worst.relative <= tolerance:
        raise ExportError(f"The export of this {name_of(model)} is wrong: {worst}; the tolerance is {tolerance:g}.")
    return ExportReport(
        path=str(folder / FILE),
        model_type=model.config.model_type,
        inputs=graph.names,
        outputs=tuple(output.name for output in session.get_outputs()),
        opset=writing.opset_of(path),
        dynamic_axes=axes,
        traced_shapes=shapes_of(traced),
        checked_shapes=tuple(shapes_of(inputs) for _, inputs in cases),
        max_abs_difference=worst.absolute,
        mean_abs_difference=worst.mean,
        largest_output=worst.largest,
        bytes=_bytes(path),
    )


def _quantize(model: Any, source: Path, path: Path, report: ExportReport, batch: int, length: int) -> ExportReport:
    """The int8 version of `source` at `path`, and what the report on `source` says of it instead."""
    in_float = quantizing.quantize_file(model, source, path)
    graph = writing.Graph(writing.twin_of(model), report.inputs)
    cases = checking.cases_for(model, batch, length, padded="attention_mask" in report.inputs)
    worst = checking.worst_difference(graph, checking.open_session(path), cases)
    if math.isinf(worst.relative):
        raise ExportError(f"This {name_of(model)} has no usable answers in int8: {worst}.")
    return replace(
        report,
        max_abs_difference=worst.absolute,
        mean_abs_difference=worst.mean,
        largest_output=worst.largest,
        bytes=_bytes(path),
        quantize="int8",
        bytes_float=report.bytes,
        linear_in_float=in_float,
    )


def _bytes(path: Path) -> int:
    """Graph and weights."""
    return sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
