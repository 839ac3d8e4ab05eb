"""Reading the masks that transformers hands to its attention modules."""

from __future__ import annotations

from torch import Tensor

CLOSED = -1e3
"""Additive masks close a pair with the lowest number of their dtype, or by hand with something like -10000."""


def is_open(mask: Tensor) -> Tensor:
    """Which entries of a mask let a query see a key, as bool."""
    return mask > CLOSED if mask.is_floating_point() else mask.bool()
