"""Tasks of the GLUE benchmark, in its published layout: tab-separated, where a quote is a character like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS
from .tables import Table, read_tabbed

FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}
BINARY_NLI = ("entailment", "not_entailment")


def _read_cola(path: Path) -> Table:
    """Only the test file has a header."""
    return read_tabbed(path, () if path.name == "test.tsv" else ("source", "label", "mark", "sentence"))


def _register(
    name: str,
    summary: str,
    metrics: tuple[str, ...],
    labels: tuple[str, ...],
    columns: Columns,
    *,
    hub_columns: Columns | None = None,
    kind: str = "classification",
    read: Callable[[Path], Table] = read_tabbed,
    more: str | None = None,
    files_names: bool = False,
) -> None:
    """`more`: the name of a second set, beside the one called matched."""
    files, splits = dict(FILES), {}
    if more:
        for split, file in (("validation", "dev"), ("test", "test")):
            files[split], files[f"{split}_{more}"] = (f"{file}_matched.tsv",), (f"{file}_{more}.tsv",)
            splits[split] = f"{split}_matched"
    hub = Hub("nyu-mll/glue", hub_columns or columns, config=name, splits=splits)
    TASKS.register(
        name,
        Task(
            name,
            summary,
            KINDS[kind],
            metrics,
            labels,
            Local(files, read, columns),
            hub,
            more_sets={more: f"validation_{more}"} if more else {},
            files_names=files_names,
        ),
    )


_register(
    "cola",
    "is the sentence acceptable English? (Matthews correlation)",
    ("matthews", "accuracy"),
    ("unacceptable", "acceptable"),
    Columns("sentence", "label", index="index"),
    hub_columns=Columns("sentence", "label", index="idx"),
    read=_read_cola,
)
_register(
    "sst2",
    "is the film review positive? (accuracy)",
    ("accuracy",),
    ("negative", "positive"),
    Columns("sentence", "label", index="index"),
    hub_columns=Columns("sentence", "label", index="idx"),
)
_register(
    "mrpc",
    "do the two sentences mean the same? (F1, accuracy)",
    ("f1", "accuracy"),
    ("not_equivalent", "equivalent"),
    Columns("#1 String", "Quality", "#2 String", index="index"),
    hub_columns=Columns("sentence1", "label", "sentence2", index="idx"),
)
_register(
    "stsb",
    "how alike are the two sentences, 0 to 5? (Spearman and Pearson correlation)",
    ("spearman", "pearson"),
    (),
    Columns("sentence1", "score", "sentence2", index="index"),
    hub_columns=Columns("sentence1", "label", "sentence2", index="idx"),
    kind="regression",
)
_register(
    "qqp",
    "are the two questions the same? (F1, accuracy)",
    ("f1", "accuracy"),
    ("not_duplicate", "duplicate"),
    Columns("question1", "is_duplicate", "question2", index="id"),
    hub_columns=Columns("question1", "label", "question2", index="idx"),
)
_register(
    "mnli",
    "does one sentence follow from the other? (accuracy on both sets)",
    ("accuracy",),
    ("entailment", "neutral", "contradiction"),
    Columns("sentence1", "gold_label", "sentence2", index="index"),
    hub_columns=Columns("premise", "label", "hypothesis", index="idx"),
    more="mismatched",
    files_names=True,
)
_register(
    "qnli",
    "does the sentence answer the question? (accuracy)",
    ("accuracy",),
    BINARY_NLI,
    Columns("question", "label", "sentence", index="index"),
    hub_columns=Columns("question", "label", "sentence", index="idx"),
    files_names=True,
)
_register(
    "rte",
    "does one sentence follow from the other? (accuracy)",
    ("accuracy",),
    BINARY_NLI,
    Columns("sentence1", "label", "sentence2", index="index"),
    hub_columns=Columns("sentence1", "label", "sentence2", index="idx"),
    files_names=True,
)
_register(
    "wnli",
    "does the sentence with the pronoun resolved follow? (accuracy)",
    ("accuracy",),
    BINARY_NLI[::-1],
    Columns("sentence1", "label", "sentence2", index="index"),
    hub_columns=Columns("sentence1", "label", "sentence2", index="idx"),
)
