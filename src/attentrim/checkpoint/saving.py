"""Save a model so that its directory holds all of it, or what it held before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..atomic import staged

CARD = "README.md"
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")


@contextmanager
def saving(directory: str | Path, stale: Sequence[str] = ()) -> Iterator[Path]:
    """Where to save a model and what belongs to it; all takes its place in `directory` when the block ends well.

    A card that is there is brought up to date; weights that are there and were not written go, and what `stale` names.
    """
    with staged(directory, copied=[CARD], stale=(*WEIGHTS, *stale)) as stage:
        yield stage
