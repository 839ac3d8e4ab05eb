"""What can be removed from a model, one module per kind, which registers its kind when imported."""

from __future__ import annotations

import importlib
import pkgutil

from .base import STRUCTURES, Left, Removed, Shapes, Structure, kinds, places_of

__all__ = ["STRUCTURES", "Left", "Removed", "Shapes", "Structure", "kinds", "places_of"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f".{_module.name}", __name__)
