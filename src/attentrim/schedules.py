"""Learning rates over a run that has two parts."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR


def restarted(args: Any, optimizer: torch.optim.Optimizer, first: int, total: int) -> Any:
    """The schedule that `args` names, run once over the first steps and anew over the others.

    Schedules that are no function of the step (on a plateau, say) cannot start again: they run through.
    """
    parts = [_named(args, steps) for steps in (first, total - first)]
    if not all(isinstance(part, LambdaLR) for part in parts):
        return _named(args, total, optimizer)
    before, after = (part.lr_lambdas[0] for part in parts)
    return LambdaLR(optimizer, lambda step: before(step) if step < first else after(step - first))


def _named(args: Any, steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
    from transformers import get_scheduler

    optimizer = optimizer or torch.optim.SGD([torch.zeros(1)], lr=1.0)
    warmup = args.get_warmup_steps(steps)
    return get_scheduler(args.lr_scheduler_type, optimizer, warmup, steps, args.lr_scheduler_kwargs)
