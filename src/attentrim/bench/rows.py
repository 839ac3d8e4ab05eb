"""What one measurement says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One candidate at one shape, dtype and device. What was not measured is None, and `remark` says why."""

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
    backend, or, where there is none, `model` in the first backend. That of `onnx-int8` is `against` in float: in
    `onnx` where that was measured too, otherwise in the first of the other backends."""
    speedup_quartiles: tuple[float, float] | None = None
    reference_backend: str | None = None
    """The backend of the reference."""
    flop_ratio: float | None = None
    """Theoretical speed-up (FLOPs): those of the reference divided by this one's."""
    max_abs_difference: float | None = None
    """How far the first output (logits or hidden states, without padding) is from that of the same model run in eager
    float32: what backend and dtype change. For a rival, from that of the dense model: what it changes itself."""
    sequences_per_second: float | None = None
    tokens_per_second: float | None = None
    """Padding included; None for images."""
    new_tokens: int | None = None
    """Of a row about generation: how many tokens each sequence got one by one, after a prompt of `length`
    tokens. Milliseconds, tokens per second and the speed-up are then those of one step, which gives each sequence one
    token, and the difference is that of the answers at the end of the prompt."""
    prefill_milliseconds: float | None = None
    """The median for the prompts themselves, in one forward pass that fills the cache."""
    prefill_speedup: float | None = None
    remark: str | None = None
