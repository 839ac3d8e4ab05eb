"""Measure how fast models are, side by side.

    from attentrim.bench import measure

    rows = measure(small, dense, shapes=[(1, 128), (8, 128)], backends=["sdpa", "compile"])
    print(rows[-1].speedup, rows[-1].flop_ratio)

Every contestant takes its turn in every repeat, so that all meet the same disturbances, and a speed-up is the median
of the ratios within repeats. Importing this package imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rows import Row

if TYPE_CHECKING:
    from .contest import measure

__all__ = ["BACKENDS", "DEVICES", "DTYPES", "RIVALS", "Row", "measure"]

BACKENDS = ("sdpa", "eager", "compile", "cudagraph", "onnx")
"""Ways to run a model: two attention implementations, torch.compile, the same with CUDA graphs, ONNX Runtime."""
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "tf32", "bfloat16", "float16")
"""tf32: float32 whose matrix products a CUDA device rounds to 10 bits, which torch does only when told to."""
RIVALS = ("int8", "torch-pruning")
"""What else a user could do to the dense model: quantise it, or prune it by magnitude."""


def __getattr__(name: str) -> Any:
    if name != "measure":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .contest import measure

    return measure
