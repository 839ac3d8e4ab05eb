"""Registries of named entries. Entries register themselves in their own modules; lists are read from here.

Other packages add entries through entry points (docs/how-to/plug-ins.md). Registered entries are found without looking
for plug-ins. The names of plug-ins come from the metadata of installed packages, and a plug-in is imported when it is
looked up or when all entries are listed.
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
    """A plug-in that is installed but cannot be used."""


class Registry(Generic[Entry]):
    """Entries of one kind by name."""

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
        """All usable names in order, including plug-ins. Warns about each plug-in that cannot be used."""
        for name in list(self._announced()):
            self._load(name)
        for reason in self._refused.values():
            warnings.warn(reason, PlugInWarning, stacklevel=2)
        return iter(sorted(self._entries))

    def names(self) -> list[str]:
        """All names in order, including plug-ins. Imports no plug-in, so some of them may be broken."""
        return sorted({*self._entries, *self._announced(), *self._refused})

    @property
    def loaded(self) -> Mapping[str, Entry]:
        """The entries that are loaded, without importing any plug-in."""
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
