"""Names and what they stand for. Things register themselves where they live; lists come from here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Generic, TypeVar

from .errors import AttentrimError, unknown_name

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """A table of one kind of thing by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, entry: Entry) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
            raise AttentrimError(f"{name!r} is no name for a {self.kind}: lower-case words joined by '-'.")
        if name in self._entries:
            raise AttentrimError(f"There is a {self.kind} {name!r} already.")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            raise AttentrimError(unknown_name(self.kind, name, self._entries))
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
