"""Measure how fast models are, side by side.

    from attentrim.bench import measure

    rows = measure(small, dense, shapes=[(1, 128), (8, 128)], backends=["sdpa", "compile"])
    print(rows[-1].speedup, rows[-1].flop_ratio)

All candidates take turns in every repeat, so that other load affects all of them, and a speed-up is the median of the
ratios within repeats. Importing this package imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rows import Row
from .settings import BACKENDS, DEVICES, DTYPES, RIVALS

if TYPE_CHECKING:
    from .measuring import measure

__all__ = ["BACKENDS", "DEVICES", "DTYPES", "RIVALS", "Row", "measure"]


def __getattr__(name: str) -> Any:
    if name != "measure":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .measuring import measure

    return measure
