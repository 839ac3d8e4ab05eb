"""The task that needs no files: acceptability, from a seeded generator."""

from __future__ import annotations

from .acceptability import sentences
from .base import TASKS, Task
from .kinds import KINDS
from .tables import Table


def _generate(split: str) -> Table:
    rows = [{"text": text, "label": label} for text, label in sentences(split)]
    return Table(f"acceptability, {split}", ("text", "label"), rows, range(1, len(rows) + 1), "sentence")


TASKS.register(
    "acceptability",
    Task(
        "acceptability",
        "is the sentence acceptable English? (generated: no files needed; Matthews correlation)",
        KINDS["classification"],
        ("matthews", "accuracy"),
        ("unacceptable", "acceptable"),
        generate=_generate,
    ),
)
