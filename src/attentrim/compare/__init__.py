"""Methods side by side: the same model, data and steps, several seeds, and confidence intervals of the differences."""

from __future__ import annotations
