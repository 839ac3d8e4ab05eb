"""The ways to run a model. Each becomes a call without arguments that returns the model's first output."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..duplicate import duplicate
from ..errors import AttentrimError, MissingExtraError
from .batches import Inputs
from .settings import INT8

Call = Callable[[], Tensor]

COMPILER_MODES = {"compile": "default", "cudagraph": "reduce-overhead"}


class UnavailableError(AttentrimError):
    """Why a candidate cannot be measured. It becomes the remark of a row."""


def prepare(model: Any, backend: str, inputs: Inputs, folder: Path, *, fresh: bool = True) -> Call:
    """`model` in `backend`, on these inputs. `folder` keeps the model's ONNX files from one shape to the next.

    Args:
        fresh: Whether compiled graphs of other models and shapes are forgotten first.
    """
    if backend in ("onnx", INT8):
        return _onnx(model, backend, inputs, folder)
    if backend == "cudagraph" and model.device.type != "cuda":
        raise UnavailableError("CUDA graphs need a CUDA device")
    attention = "eager" if backend == "eager" else "sdpa"
    if backend in COMPILER_MODES and not has_sdpa(model):
        attention = "eager"
    twin = with_attention(model, attention)
    if backend in COMPILER_MODES:
        # one graph per shape: a graph for any shape is slower, and which one is made would depend on the shapes before
        if fresh:
            torch.compiler.reset()
        twin = torch.compile(twin, mode=COMPILER_MODES[backend], dynamic=False)
    return plain_call(twin, inputs)


def plain_call(model: Any, inputs: Inputs) -> Call:
    return lambda: model(**inputs)[0]


def has_sdpa(model: Any) -> bool:
    return bool(model._supports_sdpa)


def with_attention(model: Any, attention: str) -> Any:
    """A twin that shares the weights of `model`, uses one attention implementation, and keeps no cache."""
    if attention == "sdpa" and not has_sdpa(model):
        raise UnavailableError(f"{model.config.model_type} has no SDPA attention in transformers: use eager")
    twin = duplicate(model, lambda tensor: tensor).eval()
    twin.config.use_cache = False
    if twin.config._attn_implementation != attention:
        twin.set_attn_implementation(attention)
    return twin


def place(model: Any, device: str, dtype: torch.dtype) -> Any:
    """A twin on a device, in a dtype; the model itself stays as it is."""
    return duplicate(
        model, lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
    ).eval()


@contextmanager
def many_graphs(backend: str, count: int) -> Iterator[None]:
    """Let the compiler keep a graph for each of so many models: beyond a limit it falls back to eager in silence."""
    if backend not in COMPILER_MODES:
        yield
        return
    import torch._dynamo as dynamo

    config: Any = dynamo.config
    with config.patch(recompile_limit=max(count + 8, config.recompile_limit)):
        yield


@contextmanager
def rounded_products(when: bool) -> Iterator[None]:
    """TF32 in matrix products of float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if when else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _onnx(model: Any, backend: str, inputs: Inputs, folder: Path) -> Call:
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingExtraError("onnxruntime", "onnx", f"The backend {backend}")
    import onnxruntime

    if backend == INT8 and model.device.type != "cpu":
        raise UnavailableError("dynamically quantised ONNX files run on the CPU only")
    if model.dtype is not torch.float32:
        raise UnavailableError("ONNX export takes float32 only")
    provider = "CUDAExecutionProvider" if model.device.type == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UnavailableError(f"this ONNX Runtime has no {provider}")
    path = _onnx_file(model, backend, folder)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=[provider])
    first = [session.get_outputs()[0].name]
    feed = {entry.name: inputs[entry.name].cpu().numpy() for entry in session.get_inputs()}
    return lambda: torch.from_numpy(session.run(first, feed)[0])


def _onnx_file(model: Any, backend: str, folder: Path) -> Path:
    """Exported once, for float and int8."""
    from ..export import export_onnx
    from ..export.quantizing import quantize_file

    path, int8 = folder / "model.onnx", folder / "int8" / "model.onnx"
    if not path.exists():
        with torch.inference_mode(False):
            export_onnx(model, folder)
    if backend == INT8 and not int8.exists():
        quantize_file(model, path, int8)
    return int8 if backend == INT8 else path
