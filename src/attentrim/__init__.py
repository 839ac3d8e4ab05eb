"""attentrim takes needless attention out of transformers: smaller, faster checkpoints that give the same answers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wrapt import register_post_import_hook

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .control import Control
    from .plan import Plan
    from .sites import find_sites
    from .surgery import portable, trim

_HOMES = {
    "Control": "control",
    "Plan": "plan",
    "find_sites": "sites",
    "portable": "surgery",
    "trim": "surgery",
}
"""Public names and the modules they are loaded from on first use: `import attentrim` itself imports no torch."""

__all__ = ["Control", "Plan", "find_sites", "portable", "trim"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def _register_checkpoints(module: Any) -> None:
    importlib.import_module(".checkpoint", __name__)


# Importing transformers' registry takes seconds, so wait until transformers itself does (at once, if it has already).
register_post_import_hook(_register_checkpoints, "transformers.quantizers.auto")
