"""Names and what they stand for. Things register themselves where they live; lists come from here.

Other packages add to a registry by entry points (docs/how-to/plug-ins.md). What is registered is found without looking
for plug-ins; their names are read from the metadata of the installed packages; a plug-in is imported when it is looked
up, or when all entries are listed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from .errors import AttentrimError, unknown_name
from .plugins import Announced, PlugIns, described

Entry = TypeVar("Entry")


class PlugInWarning(UserWarning):
    """A plug-in that is installed and cannot be used."""


class Registry(Generic[Entry]):
    """A table of one kind of thing by name."""

    def __init__(self, kind: str, plug_ins: PlugIns | None = None) -> None:
        self.kind = kind
        self._plug_ins = plug_ins
        self._entries: dict[str, Entry] = {}
        self._waiting: Announced | None = None
        """Plug-ins that are not imported yet; None before they are looked for."""
        self._refused: dict[str, str] = {}
        """Plug-ins that cannot be used, and why."""

    def register(self, name: str, entry: Entry) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
            raise AttentrimError(
                f"{name!r} is not a valid name for a {self.kind}: use lower-case words joined by '-'."
            )
        if name in self._entries:
            raise AttentrimError(f"There is a {self.kind} {name!r} already.")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> Entry:
        if not isinstance(name, str):  # a file can have anything where a name belongs
            raise AttentrimError(unknown_name(self.kind, name, self.names()))
        if name in self._entries:
            return self._entries[name]
        self._load(name)
        if name in self._refused:
            raise AttentrimError(self._refused[name])
        if name not in self._entries:
            raise AttentrimError(unknown_name(self.kind, name, self.names()))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        """Whether the name is known. Looking it up can still fail if it is a plug-in's."""
        return isinstance(name, str) and (name in self._entries or name in self.names())

    def __iter__(self) -> Iterator[str]:
        """The names of all that can be used, plug-ins included, in order; a warning for each plug-in that cannot."""
        for name in list(self._announced()):
            self._load(name)
        for reason in self._refused.values():
            warnings.warn(reason, PlugInWarning, stacklevel=2)
        return iter(sorted(self._entries))

    def names(self) -> list[str]:
        """The names of all, plug-ins included, in order. Imports no plug-in, so some may turn out to be broken."""
        return sorted({*self._entries, *self._announced(), *self._refused})

    @property
    def loaded(self) -> Mapping[str, Entry]:
        """What is here without importing any plug-in."""
        return MappingProxyType(self._entries)

    def _announced(self) -> Announced:
        if self._waiting is None:
            self._waiting = self._plug_ins.announced() if self._plug_ins else {}
        return self._waiting

    def _load(self, name: str) -> None:
        # taken out first: the plug-in's own module may look into this registry while it is imported
        candidates = self._announced().pop(name, None)
        if candidates is None or self._plug_ins is None:
            return
        try:
            entry = self._plug_ins.load(self.kind, name, candidates)
        except AttentrimError as error:
            self._refused[name] = str(error)
            return
        if self._entries.get(name) is entry:  # its module has registered it
            return
        try:
            self.register(name, entry)
        except AttentrimError as error:
            self._refused[name] = f"{described(self.kind, candidates[0])} is not used: {error}"
