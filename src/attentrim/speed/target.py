"""Where and how a model should be fast. Imports no torch until a target is completed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..bench.settings import BACKENDS, DEVICES, DTYPES
from ..errors import AttentrimError, unknown_name

BATCH = {"cpu": 8, "cuda": 32}
LENGTH = 128


@dataclass(frozen=True)
class Target:
    """The inputs, the number format, the device and the way to run a model that its speed is measured with."""

    batch: int
    length: int
    dtype: str
    backend: str
    device: str

    def __str__(self) -> str:
        how = [self.dtype, *([self.backend] if self.backend != "sdpa" else [])]
        return f"{self.batch} x {self.length} tokens on {self.device} ({', '.join(how)})"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def complete_target(
    model: Any,
    batch: int | None = None,
    length: int | None = None,
    dtype: str | None = None,
    backend: str | None = None,
    device: str | None = None,
) -> Target:
    """A target for this model; what is not given depends on the device, and on what the model can do."""
    import torch

    from ..bench.backends import has_sdpa
    from ..flops import most_tokens

    for kind, given, known in (("dtype", dtype, DTYPES), ("backend", backend, BACKENDS), ("device", device, DEVICES)):
        if given is not None and given not in known:
            raise AttentrimError(unknown_name(kind, given, known))
    if device == "cuda" and not torch.cuda.is_available():
        raise AttentrimError(
            "speed_device is cuda, and torch finds no CUDA device here: use cpu, or give a table that was measured "
            "there (speed_table, with speed_elsewhere)."
        )
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    longest = most_tokens(model)
    if length is not None and length > longest:
        raise AttentrimError(f"speed_length is {length}; this model has positions for {longest} tokens.")
    if backend == "cudagraph" and device != "cuda":
        raise AttentrimError("speed_backend cudagraph needs speed_device cuda.")
    if dtype == "tf32" and device != "cuda":
        raise AttentrimError("speed_dtype tf32 is a mode of CUDA devices: use float32.")
    return Target(
        batch=batch or BATCH[device],
        length=length or min(LENGTH, longest),
        dtype=dtype or "float32",
        backend=backend or ("sdpa" if has_sdpa(model) else "eager"),
        device=device,
    )
