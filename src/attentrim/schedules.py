"""Learning rates over a run that has several parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR


def restarted(args: Any, optimizer: torch.optim.Optimizer, starts: Sequence[int], total: int) -> Any:
    """The schedule that `args` names, run once over the first steps, and restarted at each of `starts`.

    Schedules that are no function of the step (on a plateau, say) cannot start again: they run through.
    """
    bounds = sorted({0, *starts, total})
    lengths = [after - before for before, after in pairwise(bounds)]
    parts = [_named(args, steps) for steps in lengths]
    if not all(isinstance(part, LambdaLR) for part in parts):
        return _named(args, total, optimizer)
    factors = [part.lr_lambdas[0] for part in parts]

    def factor(step: int) -> float:
        part = min(bisect_right(bounds, step), len(parts)) - 1
        return float(factors[part](step - bounds[part]))

    return LambdaLR(optimizer, factor)


def _named(args: Any, steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
    from transformers import get_scheduler

    optimizer = optimizer or torch.optim.SGD([torch.zeros(1)], lr=1.0)
    warmup = args.get_warmup_steps(steps)
    return get_scheduler(args.lr_scheduler_type, optimizer, warmup, steps, args.lr_scheduler_kwargs)
