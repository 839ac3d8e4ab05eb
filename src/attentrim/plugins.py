"""What other packages add: objects that they announce under entry points, loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import AttentrimError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Announced = dict[str, list["EntryPoint"]]
"""Entry points by name. A name with several of them was announced by several packages."""


@dataclass(frozen=True)
class PlugIns:
    """A group of entry points, and what its entries must be."""

    group: str
    wanted: str
    """What an entry must be, in words: 'a subclass of attentrim.methods.Method'."""
    fits: Callable[[Any], bool]
    """The same as a test."""

    def announced(self) -> Announced:
        """Reads the metadata of all installed packages, and imports none of them."""
        from importlib.metadata import entry_points

        found: Announced = {}
        for entry_point in sorted(entry_points(group=self.group), key=_package):
            found.setdefault(entry_point.name, []).append(entry_point)
        return found

    def load(self, kind: str, name: str, candidates: list[EntryPoint]) -> Any:
        """The object behind a name. If it cannot be loaded, an AttentrimError names the package."""
        if len(candidates) > 1:
            packages = " and ".join(_package(candidate) for candidate in candidates)
            raise AttentrimError(f"The {kind} {name!r} comes from {packages}: uninstall all of them but one.")
        (candidate,) = candidates
        source = described(kind, candidate)
        try:
            entry = candidate.load()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise AttentrimError(f"{source} cannot be imported: {reason}") from error
        if not self.fits(entry):
            raise AttentrimError(f"{source} is not {self.wanted}.")
        own = getattr(entry, "name", None)
        if own != name:
            raise AttentrimError(f"{source} has the name {own!r} itself: it must be that of the entry point.")
        return entry


def described(kind: str, entry_point: EntryPoint) -> str:
    """'The method 'snip' of attentrim-snip (attentrim_snip:Snip)'"""
    return f"The {kind} {entry_point.name!r} of {_package(entry_point)} ({entry_point.value})"


def _package(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else entry_point.module
