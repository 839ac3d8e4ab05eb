"""Tasks: files in, examples out; predictions in, a metric out. A module registers its tasks when it is imported."""

from __future__ import annotations

import importlib

from .base import TASKS, Task

__all__ = ["TASKS", "Task"]

for _family in ("glue", "reviews", "tagging", "endings", "language", "embedded"):
    importlib.import_module(f".{_family}", __name__)
