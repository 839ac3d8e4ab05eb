"""Tasks: files in, examples out; predictions in, a metric out. A module registers its tasks when it is imported."""

from __future__ import annotations

import importlib

from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS

__all__ = ["KINDS", "TASKS", "Columns", "Hub", "Local", "Task"]

for _family in ("glue", "reviews", "tagging", "endings", "language", "embedding", "embedded"):
    importlib.import_module(f".{_family}", __name__)
