"""A number at the top of a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    name: str
    value: str
    """As people read it."""
    note: str
    number: float
    """As it is, for machines."""
    key: str
    """Of what the number is in metrics.json."""

    @property
    def raw(self) -> str:
        return repr(self.number)
