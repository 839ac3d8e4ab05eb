"""A run under the name that it has among others."""

from __future__ import annotations

from dataclasses import dataclass

from ..runs.reader import Recorded


@dataclass(frozen=True)
class Compared:
    entry: str
    run: Recorded

    @property
    def label(self) -> str:
        place = self.run.path.resolve().name
        return f"{self.entry}, {place}" if place.startswith("seed-") else self.entry
