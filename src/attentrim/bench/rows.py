"""What one measurement says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One model or rival at one shape, dtype and device. If it was not measured, `remark` says why."""

    batch: int
    length: int
    """Tokens per sequence, padding included; frames for speech; ignored for images."""
    dtype: str
    device: str
    backend: str
    name: str
    """"model", "against", or the name of a rival."""
    parameters: int | None = None
    milliseconds_median: float | None = None
    milliseconds_quartiles: tuple[float, float] | None = None
    speedup: float | None = None
    """The median over repeats of the reference's time divided by this one's. The reference is `against` in the same
    backend, or without it `model` in the first backend. For `onnx-int8` it is `against` in float: in `onnx` if that is
    measured, otherwise in the first other backend."""
    speedup_quartiles: tuple[float, float] | None = None
    reference_backend: str | None = None
    """The backend of the reference."""
    flop_ratio: float | None = None
    """Theoretical speed-up (FLOPs): the reference's divided by this one's."""
    max_abs_difference: float | None = None
    """The largest difference of the first output (logits or hidden states, without padding) from that of the same
    model in eager float32: the effect of backend and dtype. For a rival: from the output of the dense model."""
    sequences_per_second: float | None = None
    tokens_per_second: float | None = None
    """Padding included; None for images."""
    new_tokens: int | None = None
    """In rows about generation: the number of tokens generated after a prompt of `length` tokens. Milliseconds, tokens
    per second and speed-up are then those of one step, which adds one token to each sequence, and the difference is
    that of the outputs at the end of the prompt."""
    prefill_milliseconds: float | None = None
    """The median time of the forward pass over the prompts, which fills the cache."""
    prefill_speedup: float | None = None
    remark: str | None = None
