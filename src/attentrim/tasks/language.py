"""Language modelling on plain text: masked, one line per example, and causal, one running text."""

from __future__ import annotations

from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS
from .tables import Table, read_plain, read_running

COLUMNS = Columns("text")
FILES = {
    "train": ("train.txt", "wiki.train.tokens", "wiki.train.raw"),
    "validation": ("validation.txt", "valid.txt", "wiki.valid.tokens", "wiki.valid.raw"),
    "test": ("test.txt", "wiki.test.tokens", "wiki.test.raw"),
}
HUB = Hub("Salesforce/wikitext", COLUMNS, config="wikitext-2-raw-v1")


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
        Local(FILES, read_plain, COLUMNS),
        HUB,
        adapt=without_blanks,
    ),
)
TASKS.register(
    "clm",
    Task(
        "clm",
        "predict each token from those before it, for decoders (perplexity by token and by word, lower is better)",
        KINDS["clm"],
        ("perplexity", "word_perplexity"),
        (),
        Local(FILES, read_running, COLUMNS),
        HUB,
    ),
)
