"""Figures about runs, comparisons and measurements.

    from attentrim import plots

    ax = plots.head_map("run")
    ax.figure.savefig("heads.svg")

Every function takes a run directory (or the `Recorded` read from it) and an `ax` to draw on, and returns the `ax`.
Without an `ax` it makes a figure. Nothing is shown or saved.
"""

from __future__ import annotations

from .comparisons import metric_against_sparsity, sweep
from .costs import layer_times, metric_against_speed
from .curves import drop_rates, metric_by_epoch, training_curve
from .heads import head_map, head_map_over_training, heads_by_layer, kept_by_seeds
from .layers import left_by_layer, open_over_training
from .speed import latency_and_flops

__all__ = [
    "drop_rates",
    "head_map",
    "head_map_over_training",
    "heads_by_layer",
    "kept_by_seeds",
    "latency_and_flops",
    "layer_times",
    "left_by_layer",
    "metric_against_sparsity",
    "metric_against_speed",
    "metric_by_epoch",
    "open_over_training",
    "sweep",
    "training_curve",
]
