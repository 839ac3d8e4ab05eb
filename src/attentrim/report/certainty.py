"""How certain a metric is, as far as the number of examples tells."""

from __future__ import annotations

import math

from ..runs.reader import Recorded
from ..tasks import TASKS

Z = 1.959964
"""Of the normal distribution: 95% lie within."""
JUDGED_ONE_BY_ONE = ("classification", "pair", "choice")
"""Kinds of tasks in which each example is right or wrong; in the others accuracy counts something else."""


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% interval of a share of so many examples, by Wilson's score."""
    middle = share + Z * Z / (2 * count)
    spread = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    scale = 1 + Z * Z / count
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def interval_of(run: Recorded) -> tuple[float, float] | None:
    """Of the run's metric; None unless it is a share of right answers."""
    value, count = run.metrics.get("value"), run.metrics.get("examples") or 0
    kind = TASKS[run.task].kind.name if run.task in TASKS else run.task
    if run.metrics.get("metric") != "accuracy" or kind not in JUDGED_ONE_BY_ONE or value is None or count < 1:
        return None
    right = value * count
    return wilson(value, count) if 0 <= value <= 1 and abs(right - round(right)) < 1e-4 else None


def on_examples(run: Recorded) -> str:
    """'40 examples, 95% interval 0.4222 to 0.7149'"""
    count, interval = f"{run.metrics['examples']:,} examples", interval_of(run)
    return count if interval is None else f"{count}, 95% interval {interval[0]:.4f} to {interval[1]:.4f}"


def about_examples(run: Recorded) -> str:
    """What the number of examples says of the metrics, and what it does not."""
    if not run.metrics:
        return ""
    text = f"Measured on {run.metrics['examples']:,} examples of {run.validation_data}, with one seed."
    interval = interval_of(run)
    if interval is None:
        return f"{text} There is no interval, because the answers to single examples were not kept."
    return (
        f"{text} The 95% interval of the accuracy, {interval[0]:.4f} to {interval[1]:.4f} (Wilson), covers the choice "
        "of examples, but neither the seed nor other kinds of data."
    )
