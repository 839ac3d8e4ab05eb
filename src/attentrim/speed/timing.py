"""Time whole models side by side, as a target says."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..bench.allocator import keep_buffers
from ..bench.backends import many_graphs, place, prepare, rounded_products
from ..bench.batches import make_batch
from ..bench.settings import PLAIN
from ..bench.timing import calls_per_repeat, clock_of, interleave, paired_ratios
from .target import Target

PADDING = 0.125
"""The share of the last row that is padding, so that attention gets a mask."""
LEAST_REPEATS, MOST_REPEATS = 5, 25
WARM_UP_CALLS = {True: 1, False: 3}
"""For plain PyTorch, and for what compiles or records a graph first."""
Tick = Callable[[], object]


def time_models(
    models: Sequence[Any], target: Target, seconds: float, tick: Tick = lambda: None, source: Any = None
) -> list[list[float]]:
    """Milliseconds by model and repeat. All take turns in each repeat; in all, it takes about `seconds`.

    Args:
        tick: Called after each model that is made ready.
        source: The model that the inputs are made for, if not the first one.
    """
    if target.device == "cpu":
        keep_buffers()
    weights = torch.float32 if target.dtype == "tf32" else getattr(torch, target.dtype)
    clock = clock_of(target.device)
    inputs = make_batch(source or models[0], target.batch, target.length, PADDING, target.device, weights)
    turns, spent = [], 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.inference_mode(),
        rounded_products(target.dtype == "tf32"),
        many_graphs(target.backend, len(models)),
    ):
        for number, model in enumerate(models):
            placed = place(model, target.device, weights)
            call = prepare(placed, target.backend, inputs, Path(folder, str(number)), fresh=False)
            for _ in range(WARM_UP_CALLS[target.backend in PLAIN]):
                call()
            calls = calls_per_repeat(call, clock, target.device)
            start = clock()
            call()
            spent += (calls + 1) * (clock() - start)
            turns.append((call, calls))
            tick()
        repeats = min(max(round(seconds / spent), LEAST_REPEATS), MOST_REPEATS)
        times = interleave(turns, repeats, clock)
    return [[1e3 * value for value in found] for found in times]


def speedup_of(small: Any, dense: Any, target: Target, seconds: float = 12.0) -> float:
    """How many times faster `small` is than `dense`: the median of the ratios within repeats."""
    before, after = time_models([dense, small], target, seconds)
    return statistics.median(paired_ratios(before, after))
