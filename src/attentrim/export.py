"""Write a model as ONNX with dynamic batch and sequence, and check in onnxruntime that the file answers like it.

    report = export_onnx(model, "exported")
    session = onnxruntime.InferenceSession(report.path)
    session.run(None, dict(tokenizer(texts, return_tensors="np", padding=True)))

The inputs of the file are those that a tokenizer or processor makes: token types only where the model tells several
apart (`type_vocab_size` above 1), as tokenizers do. Decoders come without a cache.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .duplicate import duplicate
from .errors import AttentrimError, MissingExtraError
from .inputs import example_inputs, unpadded
from .routing import NAME as CONTROL
from .sites import find_sites, layout_of, unwrap

FILE = "model.onnx"
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
CHATTY = ("torch.onnx", "onnxscript", "onnx_ir")
"""Loggers that warn of what is of no account to the caller."""
BACKENDS = ("eager", "sdpa")
"""Attention implementations that the exporter can read."""
LARGEST_FILE = 2**31 - 2**26
"""Bytes of weights above which they are stored beside the graph: one ONNX file ends at 2 GiB."""
LONGER = 3
"""How many more tokens than traced the parity check takes."""
SPARE_POSITIONS = 2
"""roberta and its kin number positions from 2."""

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
    largest_output: float
    """The largest absolute value of the output that differed so."""
    bytes: int
    """Graph and weights."""


def export_onnx(
    model: Any, output_dir: str | Path, *, batch: int = 2, length: int = 16, tolerance: float = 1e-4
) -> ExportReport:
    """Write `model` to `output_dir`/model.onnx and check it, at other shapes than those it was traced with.

    `batch` and `length` (tokens of text, frames of speech) are the shapes of the trace; the file takes any. Every
    output must agree within `tolerance` · max(1, its largest value), or an `ExportError` is raised and nothing is
    written. The model itself stays as it is.
    """
    model = unwrap(model)
    _refuse_arguments(model, output_dir, batch, length, tolerance)
    _refuse_model(model)
    _require_packages()
    graph = _Graph(_twin(model), tuple(example_inputs(model)))
    traced = example_inputs(model, batch, length, padding="right")
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as scratch:
        path = Path(scratch, FILE)
        _write(graph, traced, path)
        session = _session(path)
        axes = _checked_axes(session, _axes(traced))
        cases = _cases(model, batch, length, padded="attention_mask" in traced)
        worst = max(_compare(graph, session, inputs, padding) for padding, inputs in cases)
        if not worst.relative <= tolerance:
            raise ExportError(f"The export of this {_name(model)} is wrong: {worst}; the tolerance is {tolerance:g}.")
        report = ExportReport(
            path=str(folder / FILE),
            model_type=model.config.model_type,
            inputs=graph.names,
            outputs=tuple(output.name for output in session.get_outputs()),
            opset=_opset(path),
            dynamic_axes=axes,
            traced_shapes=_shapes(traced),
            checked_shapes=tuple(_shapes(inputs) for _, inputs in cases),
            max_abs_difference=worst.absolute,
            largest_output=worst.largest,
            bytes=sum(file.stat().st_size for file in Path(scratch).iterdir()),
        )
        for file in list(Path(scratch).iterdir()):
            os.replace(file, folder / file.name)
    return report


# What is refused


def _refuse_arguments(model: Any, output_dir: str | Path, batch: int, length: int, tolerance: float) -> None:
    def wrong(name: str, rule: str, got: object) -> ExportError:
        return ExportError(f"The {name!r} parameter of export_onnx must be {rule}. Got {got!r} instead.")

    if Path(output_dir).is_file():
        raise wrong("output_dir", "a directory, new or existing", str(output_dir))
    if batch < 2:
        raise wrong("batch", "at least 2, because the exporter takes a size of 1 for a constant", batch)
    if length < 4:
        raise wrong("length", "at least 4, so that the check can use shorter inputs than the trace", length)
    if not tolerance > 0:
        raise wrong("tolerance", "a positive number", tolerance)
    layout_of(model)
    text = getattr(model.config, "text_config", model.config)
    longest = (getattr(text, "max_position_embeddings", None) or math.inf) - LONGER - SPARE_POSITIONS
    if length > longest:
        raise wrong("length", f"at most {longest}, so that the check can use longer inputs than the trace", length)


def _refuse_model(model: Any) -> None:
    if any(hasattr(site.module, CONTROL) for site in find_sites(model)):
        raise ExportError(
            "This model is under control, and its gates and masks would not be in the file: detach the control, "
            "and export attentrim.trim(model, plan)."
        )
    for parameter in model.parameters():
        if parameter.is_meta:
            raise ExportError("Some weights are offloaded: load the model without offloading to export it.")
        if parameter.dtype is not torch.float32:
            raise ExportError(
                f"ONNX export takes float32 weights. Got {parameter.dtype}: call model.float() first, or load the "
                "model with dtype='float32'."
            )


def _require_packages() -> None:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "onnx", "ONNX export")


# What is traced


class _Graph(nn.Module):
    """Tensors in, by position; the tensors of the ModelOutput out, by name."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        result = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True)
        # what a decoder was given of its encoder is no answer
        names = [name for name in result if not name.startswith("encoder_")]
        return {name: result[name] for name in names if isinstance(result[name], Tensor)}


def _twin(model: Any) -> Any:
    """A copy on the CPU, made ready for export, so that nothing has to be restored on the model. It shares weights."""
    twin = duplicate(model, Tensor.cpu).eval().requires_grad_(False)
    twin.config.use_cache = False
    if layout_of(model).only_eager_onnx:
        twin.set_attn_implementation("eager")
    elif twin.config._attn_implementation not in BACKENDS:
        twin.set_attn_implementation("sdpa")
    return twin


def _axes(inputs: Inputs) -> Axes:
    """The names of the dynamic axes. Texts and images, encoder and decoder have sizes of their own."""
    sequence = "samples" if "input_values" in inputs else "sequence"
    axes: Axes = {}
    for name, value in inputs.items():
        if name == "pixel_values":
            names = ["image_batch" if "input_ids" in inputs else "batch"]
        elif name == "decoder_input_ids":
            names = ["batch", "decoder_sequence"]
        else:
            names = ["batch", "choices", sequence] if value.dim() == 3 else ["batch", sequence]
        axes[name] = dict(enumerate(names))
    return axes


def _write(graph: _Graph, inputs: Inputs, path: Path) -> None:
    try:
        with torch.no_grad(), _quiet():
            torch.onnx.export(
                graph,
                tuple(inputs.values()),
                path,
                dynamo=True,
                verbose=False,
                input_names=list(inputs),
                output_names=list(graph(*inputs.values())),
                dynamic_shapes=(tuple(_axes(inputs).values()),),
                external_data=sum(p.numel() * p.element_size() for p in graph.parameters()) > LARGEST_FILE,
            )
    except (RuntimeError, ValueError) as error:
        raise ExportError(f"This {_name(graph.model)} cannot be exported: {_reason(error)}") from error
    _strip(path)


def _strip(path: Path) -> None:
    """The exporter notes at each node where it came from, file paths of this machine included."""
    import onnx

    graph = onnx.load(path, load_external_data=False)
    for node in graph.graph.node:
        node.ClearField("metadata_props")
    onnx.save(graph, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Standard output belongs to the caller; the exporter prints to it."""
    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _reason(error: BaseException) -> str:
    """The first cause, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return textwrap.shorten(str(error), 300)


# What is checked


@dataclass(frozen=True)
class _Difference:
    """How far one output of the file is from the model's."""

    output: str
    case: str
    absolute: float
    largest: float

    @property
    def relative(self) -> float:
        relative = self.absolute / max(1.0, self.largest)
        return math.inf if math.isnan(relative) else relative

    def __lt__(self, other: _Difference) -> bool:
        return self.relative < other.relative

    def __str__(self) -> str:
        return (
            f"its output {self.output!r} is off by {self.absolute:.3g} on {self.case}, "
            f"which is {self.relative:.3g} of max(1, its largest value {self.largest:.3g})"
        )


def _cases(model: Any, batch: int, length: int, *, padded: bool) -> list[tuple[str, Inputs]]:
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


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ExportError(f"onnxruntime cannot load the exported file: {_reason(error)}") from error


def _checked_axes(session: Any, asked: Axes) -> Axes:
    found = {
        entry.name: {axis: size for axis, size in enumerate(entry.shape) if isinstance(size, str)}
        for entry in session.get_inputs()
    }
    for name, axes in asked.items():
        fixed = [label for axis, label in axes.items() if axis not in found.get(name, {})]
        if fixed:
            raise ExportError(f"The exporter made the {fixed[0]} size of the input {name!r} a constant.")
    return found


def _compare(graph: _Graph, session: Any, inputs: Inputs, padding: str) -> _Difference:
    """The worst difference of any output, at the positions that are not padding."""
    case = f"inputs of shape {_shapes(inputs)} with padding {padding}"
    with torch.no_grad():
        expected = graph(*inputs.values())
    try:
        results = session.run(list(expected), {name: value.numpy() for name, value in inputs.items()})
    except Exception as error:
        raise ExportError(f"onnxruntime cannot run the exported file on {case}: {_reason(error)}") from error
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
        differences.append(_Difference(name, case, float((found - wanted).abs().max()), float(wanted.abs().max())))
    return max(differences)


def _opset(path: Path) -> int:
    import onnx

    graph = onnx.load(path, load_external_data=False)
    return next(int(entry.version) for entry in graph.opset_import if not entry.domain)


def _shapes(inputs: Inputs) -> Shapes:
    return {name: tuple(value.shape) for name, value in inputs.items()}


def _name(model: Any) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"
