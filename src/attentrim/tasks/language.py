"""Masked language modelling on running text, one line per example."""

from __future__ import annotations

from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS
from .tables import Table, read_plain

COLUMNS = Columns("text")


def without_blanks(table: Table) -> Table:
    """Blank lines separate paragraphs; they are no examples."""
    kept = [index for index, row in enumerate(table.rows) if str(row.get("text") or "").strip()]
    return table.only(kept)


TASKS.register(
    "mlm",
    Task(
        "mlm",
        "guess hidden words (perplexity, lower is better; accuracy)",
        KINDS["mlm"],
        ("perplexity", "accuracy"),
        (),
        Local(
            {
                "train": ("train.txt", "wiki.train.tokens", "wiki.train.raw"),
                "validation": ("validation.txt", "valid.txt", "wiki.valid.tokens", "wiki.valid.raw"),
                "test": ("test.txt", "wiki.test.tokens", "wiki.test.raw"),
            },
            read_plain,
            COLUMNS,
        ),
        Hub("Salesforce/wikitext", COLUMNS, config="wikitext-2-raw-v1"),
        adapt=without_blanks,
    ),
)
