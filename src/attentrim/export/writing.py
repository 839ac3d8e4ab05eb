"""A model as an ONNX file: what is traced, and how."""

from __future__ import annotations

import logging
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..duplicate import duplicate
from ..sites import layout_of
from .report import Axes, ExportError, Inputs, name_of

NOISY_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir")
"""They warn of what does not concern the caller."""
BACKENDS = ("eager", "sdpa")
"""Attention implementations that the exporter can read."""
LARGEST_FILE = 2**31 - 2**26
"""Bytes of weights above which they are stored beside the graph: one ONNX file ends at 2 GiB."""


class Graph(nn.Module):
    """Tensors in, by position; the tensors of the ModelOutput out, by name."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        result = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True)
        # what a decoder was given of its encoder is not an output of its own
        names = [name for name in result if not name.startswith("encoder_")]
        return {name: result[name] for name in names if isinstance(result[name], Tensor)}


def twin_of(model: Any) -> Any:
    """A copy on the CPU, made ready for export, so that nothing has to be restored on the model. It shares weights."""
    twin = duplicate(model, Tensor.cpu).eval().requires_grad_(False)
    twin.config.use_cache = False
    if layout_of(model).only_eager_onnx:
        twin.set_attn_implementation("eager")
    elif twin.config._attn_implementation not in BACKENDS:
        twin.set_attn_implementation("sdpa")
    return twin


def dynamic_axes(inputs: Inputs) -> Axes:
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


def write(graph: Graph, inputs: Inputs, path: Path) -> None:
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
                dynamic_shapes=(tuple(dynamic_axes(inputs).values()),),
                external_data=sum(p.numel() * p.element_size() for p in graph.parameters()) > LARGEST_FILE,
            )
    except (RuntimeError, ValueError) as error:
        raise ExportError(f"This {name_of(graph.model)} cannot be exported: {first_cause(error)}") from error
    _strip(path)


def opset_of(path: Path) -> int:
    import onnx

    graph = onnx.load(path, load_external_data=False)
    return next(int(entry.version) for entry in graph.opset_import if not entry.domain)


def first_cause(error: BaseException) -> str:
    """In one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return textwrap.shorten(str(error), 300)


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
    loggers = [logging.getLogger(name) for name in NOISY_LOGGERS]
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
