"""The methods, one small package each, which registers its method when imported. Importing loads no torch."""

from __future__ import annotations

import importlib
import pkgutil

from .base import METHODS, Method

__all__ = ["METHODS", "Method", "list_methods"]

for _module in pkgutil.iter_modules(__path__):
    if _module.ispkg:
        importlib.import_module(f".{_module.name}", __name__)


def list_methods() -> list[str]:
    """The names of all methods, those of plug-ins included."""
    return list(METHODS)
