"""What cannot be exported is refused before anything is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from ..errors import MissingExtraError
from ..flops import most_tokens
from ..routing import NAME as CONTROL
from ..sites import find_sites, layout_of
from .checking import LONGER
from .quantizing import QUANTIZATIONS
from .report import ExportError

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def refuse_arguments(
    model: Any, output_dir: str | Path, batch: int, length: int, tolerance: float, quantize: str | None
) -> None:
    def wrong(name: str, rule: str, got: object) -> ExportError:
        return ExportError(f"The {name!r} parameter of export_onnx must be {rule}. Got {got!r} instead.")

    if Path(output_dir).is_file():
        raise wrong("output_dir", "a directory, new or existing", str(output_dir))
    if batch < 2:
        raise wrong("batch", "at least 2, because the exporter treats a size of 1 as a constant", batch)
    if length < 4:
        raise wrong("length", "at least 4, so that the check can use shorter inputs than the trace", length)
    if not tolerance > 0:
        raise wrong("tolerance", "a positive number", tolerance)
    if quantize not in (None, *QUANTIZATIONS):
        raise wrong("quantize", f"None or one of: {', '.join(QUANTIZATIONS)}", quantize)
    layout_of(model)
    longest = most_tokens(model) - LONGER
    if length > longest:
        raise wrong("length", f"at most {longest}, so that the check can use longer inputs than the trace", length)


def refuse_model(model: Any) -> None:
    if any(hasattr(site.module, CONTROL) for site in find_sites(model)):
        raise ExportError(
            "A Control is attached to this model, and its gates and masks would not be exported: detach it, and "
            "export attentrim.trim(model, plan)."
        )
    for parameter in model.parameters():
        if parameter.is_meta:
            raise ExportError("Some weights are offloaded: load the model without offloading to export it.")
        if parameter.dtype is not torch.float32:
            raise ExportError(
                f"ONNX export takes float32 weights. Got {parameter.dtype}: call model.float() first, or load the "
                "model with dtype='float32'."
            )


def require_packages() -> None:
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "onnx", "ONNX export")
