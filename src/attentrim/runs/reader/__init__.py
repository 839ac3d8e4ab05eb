"""Read the directory of a run: what is there, and what is missing. Imports no torch; knows little else."""

from __future__ import annotations

from .attention import MOMENTS, Sentence
from .bench import measured_pairs, measured_speedup
from .files import ATTENTION, BENCH, CARD, CONFIG, HISTORY, METRICS, PLAN, is_run, sound_bench
from .gates import Gates
from .recorded import Recorded, as_run, entries
from .speeds import LayerTimes, SpeedPoint, layer_times_of, speeds_of

__all__ = [
    "ATTENTION",
    "BENCH",
    "CARD",
    "CONFIG",
    "HISTORY",
    "METRICS",
    "MOMENTS",
    "PLAN",
    "Gates",
    "LayerTimes",
    "Recorded",
    "Sentence",
    "SpeedPoint",
    "as_run",
    "entries",
    "is_run",
    "layer_times_of",
    "measured_pairs",
    "measured_speedup",
    "sound_bench",
    "speeds_of",
]
