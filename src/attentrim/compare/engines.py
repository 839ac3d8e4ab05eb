"""Where runs are made. An engine makes those that it is given; which run is ready when is none of its business."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ..registry import Registry
from .local import Local
from .on_ray import OnRay


class Engine(Protocol):
    """Started with how many runs it is to make at a time, or with None where that is its own to know."""

    jobs: int

    def run(self, directory: Path) -> str | None:
        """Make the run whose settings are in a fresh directory; why it failed, or None. Called by threads."""

    def stop(self) -> None:
        """End the runs at work: `run` returns soon, and makes no more."""

    def close(self) -> None:
        """Called last, when no thread is in `run`."""


ENGINES: Registry[Callable[[int | None], Engine]] = Registry("engine")
ENGINES.register("local", Local)
ENGINES.register("ray", OnRay)
