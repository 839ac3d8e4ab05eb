"""What a plan knows of the places in a model: paths and counts, without the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from .errors import PlanError

MOST_UNITS = 2**22
"""More units than any place has: a file that claims more is damaged."""
LONGEST_PATH = 1000


@dataclass(frozen=True)
class Shape:
    """What a plan knows of a place in the model that it was made for."""

    path: str
    column: ClassVar[str] = ""
    """What a table calls what such places hold; empty where they have no column of their own."""

    def left_of(self, before: Any) -> str:
        """What is left of a place that was `before`, for a table: '8 of 12'."""
        return ""

    def share_of(self, before: Any) -> float | None:
        """The same from 0 to 1; None where the units are there and do something else."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Without what is at its default."""
        defaults = {entry.name: entry.default for entry in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Any:
        known = {field.name for field in fields(cls)}
        for name in set(entry) - known:
            raise PlanError(f"a place has the unknown field {name!r}")
        shape = cls(**entry)
        shape.check()
        return shape

    def check(self) -> None:
        """Raise if there can be no such place."""
        if not isinstance(self.path, str) or len(self.path) > LONGEST_PATH:
            raise PlanError(f"a place is named by its path. Got {self.path!r}")


def check_count(number: Any, what: str, path: str) -> None:
    """Raise unless a number read from a file can be a count."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_UNITS:
        raise PlanError(f"{path!r} has {number!r} {what}, which is not a possible count")
