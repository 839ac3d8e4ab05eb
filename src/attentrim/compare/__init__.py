"""Methods side by side: the same model, data and steps, several seeds, and what the differences are worth."""

from __future__ import annotations
