"""The errors a user can meet, and the one place that words them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

LONGEST = 2000
"""The most characters in a message: what it quotes can be as long as a whole file."""


class AttentrimError(ValueError):
    """Base of every error that the caller can fix. The command line prints it as one line."""

    def __init__(self, message: object = "") -> None:
        text = str(message)
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}")


class UnsupportedModelError(AttentrimError):
    """The model, or this part of it, is not one attentrim knows how to handle."""


class PlanError(AttentrimError):
    """A plan that is damaged, contradicts itself, or was made for another model."""


class ControlError(AttentrimError):
    """Something asked of a live model that it cannot do, or did not do."""


class MethodError(AttentrimError):
    """A method with a setting that cannot be, or used where it cannot work."""


class TrainingError(AttentrimError):
    """A run that went wrong in a way that more steps would not fix."""


class WriteError(AttentrimError):
    """A file that could not be written: the disk is full, or the directory cannot be written to."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"Cannot write {path}: {cause}.")
        self.path, self.cause = path, cause


class TaskError(AttentrimError):
    """Data that is missing, damaged, or not what a task reads."""


class MissingExtraError(AttentrimError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs {package}, which is not installed: pip install "attentrim[{extra}]"')


def did_you_mean(name: object, options: Iterable[str]) -> str:
    """' Did you mean 'autoattention'?', or nothing."""
    close = difflib.get_close_matches(str(name), list(options), n=3, cutoff=0.65)
    return f" Did you mean {' or '.join(repr(option) for option in close)}?" if close else ""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """'Unknown method 'autoatention'. Did you mean 'autoattention'? Available: ...'"""
    options = sorted(known)
    return f"Unknown {kind} {name!r}.{did_you_mean(name, options)} Available: {', '.join(options)}."
