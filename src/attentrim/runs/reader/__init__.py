"""Read the directory of a run: what is there, and what is missing. Imports no torch; knows plans and errors only."""

from __future__ import annotations

from .attention import MOMENTS, Sentence
from .bench import measured_pairs
from .files import ATTENTION, BENCH, CARD, CONFIG, HISTORY, METRICS, PLAN, is_run
from .gates import Gates
from .recorded import Recorded, as_run, entries

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
    "Recorded",
    "Sentence",
    "as_run",
    "entries",
    "is_run",
    "measured_pairs",
]
