"""Sentence embeddings: texts without labels, one per line; the target is a teacher's embeddings."""

from __future__ import annotations

from .base import TASKS, Hub, Local, Task
from .kinds import KINDS
from .language import COLUMNS, without_blanks
from .tables import read_plain

TASKS.register(
    "embedding",
    Task(
        "embedding",
        "keep a model's sentence embeddings (Spearman of similarities, cosine, neighbours kept); no labels",
        KINDS["embedding"],
        KINDS["embedding"].default_metrics,
        (),
        Local(
            {"train": ("train.txt",), "validation": ("validation.txt", "valid.txt"), "test": ("test.txt",)},
            read_plain,
            COLUMNS,
        ),
        Hub("Salesforce/wikitext", COLUMNS, config="wikitext-2-raw-v1"),
        adapt=without_blanks,
    ),
)
