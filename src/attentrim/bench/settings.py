"""The names that a measurement can be asked for."""

from __future__ import annotations

INT8 = "onnx-int8"
BACKENDS = ("sdpa", "eager", "compile", "cudagraph", "onnx", INT8)
"""Ways to run a model: two attention implementations, torch.compile, the same with CUDA graphs, ONNX Runtime, the same
with weights in int8."""
PLAIN = ("sdpa", "eager")
"""Those that are plain PyTorch."""
DEVICES = ("cpu", "cuda")
DTYPES = ("float32", "tf32", "bfloat16", "float16")
"""tf32: float32 whose matrix products a CUDA device rounds to 10 bits, which torch does only when told to."""
RIVALS = ("int8", "torch-pruning")
"""What else a user could do to the dense model: quantise it, or prune it by magnitude."""
