"""A checked float file with its weights in 8 bits: onnxruntime's dynamic quantisation, which needs no data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..inputs import example_inputs
from .outliers import too_coarse
from .report import ExportError, name_of
from .writing import first_cause

QUANTIZATIONS = ("int8",)
OPERATORS = ["MatMul", "Gather"]
"""Linear layers (onnxruntime turns Gemm into MatMul) and embeddings. Convolutions stay in float: they hold few
weights, and the tiny wav2vec2 of the tests loses more by them than by all its linear layers."""
ROWS, TOKENS = 8, 16
"""Of the random inputs that show which linear layers stay in float."""


def quantize_file(model: Any, source: Path, target: Path) -> int:
    """Write `source`, a float export of `model`, to `target` in int8; how many linear layers stay in float."""
    target.parent.mkdir(exist_ok=True)
    # without the pre-processing that onnxruntime recommends: it changed neither speed nor answers of MiniLM-L6
    with _silent_root_logger():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        try:
            shapeless = _without_shapes(source)
            in_float = too_coarse(
                source, {name: value.numpy() for name, value in example_inputs(model, ROWS, TOKENS).items()}
            )
            quantize_dynamic(
                shapeless,
                target,
                op_types_to_quantize=OPERATORS,
                per_channel=True,  # half the error of one scale per matrix on MiniLM-L6, at the same speed
                weight_type=QuantType.QInt8,
                # a Gemm is renamed when it becomes a MatMul
                nodes_to_exclude=[name for node in in_float for name in (node, f"{node}_MatMul")],
                # products of activations with each other are slower in int8: MPNet-base takes a quarter more time
                extra_options={"MatMulConstBOnly": True},
                use_external_data_format=source.with_name(f"{source.name}.data").exists(),
            )
        except Exception as error:
            raise ExportError(f"This {name_of(model)} cannot be quantised to int8: {first_cause(error)}") from error
    shapeless.unlink()
    return len(in_float)


def _without_shapes(path: Path) -> Path:
    """A copy in the same folder, where weights beside the graph are found.

    onnxruntime transposes the weights of a Gemm in place, and would then trip over the shape noted for them.
    """
    import onnx

    graph = onnx.load(path, load_external_data=False)
    del graph.graph.value_info[:]
    copy = path.with_name("shapeless.onnx")
    onnx.save(graph, copy)
    return copy


@contextmanager
def _silent_root_logger() -> Iterator[None]:
    """onnxruntime.quantization warns through the root logger, and leaves a handler on it."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.addHandler(logging.NullHandler())
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
