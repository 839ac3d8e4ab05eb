"""The types of blocks that can be removed."""

from __future__ import annotations

BLOCKS = {"layers": "layers", "attention": "heads", "feed_forward": "neurons"}
"""What can be removed, and the kind of structure that all units of go with it. Layers are chosen first."""


def in_words(name: str, count: int = 2) -> str:
    """'attention blocks', 'feed-forward block', 'layers'"""
    words = "layers" if name == "layers" else f"{name.replace('_', '-')} blocks"
    return words if count != 1 else words[:-1]
