"""How the library tells the user something: through a function that takes a sentence."""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], None]


def ignore(remark: str) -> None:
    """For those who want no remarks."""
