"""Clocks, turns and statistics. Nothing here knows what is being timed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch

Clock = Callable[[], float]
Turn = tuple[Callable[[], object], int]
"""What to call, and how often in a repeat."""

LEAST_SECONDS = {"cpu": 0.02, "cuda": 0.1}
"""A repeat lasts at least this long: shorter ones measure the clock, the scheduler and the synchronisation."""


def clock_of(device: str) -> Clock:
    """Seconds, read when all work handed to the device is done."""
    return _cuda_clock if device == "cuda" else time.perf_counter


def _cuda_clock() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def calls_per_repeat(call: Callable[[], object], clock: Clock, device: str = "cpu") -> int:
    """How many calls make a repeat long enough, judged by one call of something already warm."""
    start = clock()
    call()
    seconds = max(clock() - start, 1e-6)
    return max(1, math.ceil(LEAST_SECONDS[device] / seconds))


def interleave(
    turns: Sequence[Turn], repeats: int, clock: Clock, tick: Callable[[], object] = lambda: None
) -> list[list[float]]:
    """Seconds per call, by candidate and repeat: each repeat times every candidate once, in the same order.

    Each turn begins with a call that is not timed, because the candidate before left the caches full of its own
    weights and its threads still spinning.
    """
    seconds: list[list[float]] = [[] for _ in turns]
    for _ in range(repeats):
        for (call, calls), times in zip(turns, seconds, strict=True):
            call()
            start = clock()
            for _ in range(calls):
                call()
            times.append((clock() - start) / calls)
        tick()
    return seconds


def median_and_quartiles(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    if len(values) == 1:
        return values[0], (values[0], values[0])
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return middle, (lower, upper)


def paired_ratios(reference: Sequence[float], own: Sequence[float]) -> list[float]:
    """How many times faster than the reference, repeat by repeat."""
    return [before / after for before, after in zip(reference, own, strict=True)]
