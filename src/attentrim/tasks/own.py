"""The user's own data: which column is what, and what kind of task it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TaskError, unknown_name
from .base import Task
from .examples import Columns, as_number, label_name, missing_column
from .kinds import KINDS
from .tables import Table

TYPES = ("classification", "pair", "regression", "tokens", "choice", "mlm", "clm", "embedding")
"""What --task_type takes; a pair is a classification of two texts."""
TEXT_NAMES = ("text", "sentence", "sentence1", "premise", "question", "tokens", "words", "review", "content")
PAIR_NAMES = ("text_pair", "sentence2", "hypothesis", "text2")
WORD_NAMES, TAG_NAMES = ("tokens", "words"), ("tags", "ner_tags", "pos_tags")
LABEL_NAMES = ("label", "labels", "class", "target", "score", "ner_tags", "tags", "category")
NO_PAIRS = ("tokens", "choice", "mlm", "clm")
NO_LABELS = ("mlm", "clm")
MOST_CLASSES = 50
"""Whole numbers of more values than this are taken for a measure, not for classes."""


@dataclass(frozen=True)
class Given:
    """What the user said."""

    kind: str | None = None
    text: str | None = None
    pair: str | None = None
    label: str | None = None
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in TYPES:
            raise TaskError(unknown_name("task type", self.kind, TYPES))


def find_columns(table: Table, given: Given) -> Columns:
    """As given; for what was not said, by the names that such columns usually have."""
    for name in (given.text, given.pair, given.label, *given.choices):
        if name is not None and name not in table.columns:
            raise missing_column(table, name)
    taken = [given.text, given.pair, given.label, *given.choices]
    label = given.label
    if label is None and given.kind not in NO_LABELS:
        label = _usual(table, LABEL_NAMES, taken)
    pair = given.pair
    if pair is None and given.text is None and given.kind not in NO_PAIRS and not given.choices:
        pair = _usual(table, PAIR_NAMES, [*taken, label])
    text = given.text or _usual(table, TEXT_NAMES, [*taken, label, pair])
    rest = [name for name in table.columns if name not in (*taken, label, pair)]
    if text is None and len(rest) == 1:
        text = rest[0]
    if text is None:
        raise TaskError(f"{table.origin}: which column is the text? Name it with --text_column. {_it_has(table)}")
    if given.kind in NO_PAIRS and given.pair:
        raise TaskError(f"--text_pair_column is not used for {given.kind}: leave it out.")
    if given.kind == "pair" and pair is None:
        raise TaskError(f"{table.origin}: a pair needs --text_pair_column. {_it_has(table)}")
    if given.kind == "choice" and len(given.choices) < 2:
        raise TaskError(f"{table.origin}: a choice needs --choice_columns, such as ending0,ending1. {_it_has(table)}")
    return Columns(text, label, pair, given.choices)


def columns_of_texts(table: Table, given: Given, paired: bool) -> Columns:
    """Of texts to embed: scored pairs, if they are asked for and the table has them (`paired`: must), else texts."""
    if bool(given.pair) != bool(given.label):
        raise TaskError(
            "Scored pairs need --text_column, --text_pair_column and --label_column; texts need one column."
        )
    if given.pair and (paired or {given.text, given.pair, given.label} <= {*table.columns}):
        return find_columns(table, given)
    text = given.text if given.text in table.columns else None
    if text is None and given.text and not given.pair:
        raise missing_column(table, given.text)
    usual = _usual(table, TEXT_NAMES, [])
    text = text or usual or (table.columns[0] if len(table.columns) == 1 else None)
    if text is None:
        raise TaskError(f"{table.origin}: which column is the text? Name it with --text_column. {_it_has(table)}")
    return Columns(text)


def _usual(table: Table, names: Sequence[str], taken: Sequence[str | None]) -> str | None:
    """The only column with one of the usual names."""
    lower = {name.lower(): name for name in table.columns if name not in taken}
    return next((lower[name] for name in names if name in lower), None)


def _it_has(table: Table) -> str:
    return f"It has: {', '.join(table.columns)}."


def infer_kind(table: Table, columns: Columns) -> str:
    """What the labels, and the columns, make likely."""
    if columns.choices:
        return "choice"
    if columns.label is None:
        raise TaskError(
            f"{table.origin}: which column is the label? Name it with --label_column; without labels there is "
            f"--task_type {' or '.join(NO_LABELS)}. {_it_has(table)}"
        )
    if columns.text.lower() in WORD_NAMES and columns.label.lower() in TAG_NAMES:
        return "tokens"
    values = [(index, row.get(columns.label)) for index, row in enumerate(table.rows)]
    if any(isinstance(value, list | tuple) for _, value in values):
        return "tokens"
    named = [(index, value) for index, value in values if label_name(value)]
    numbers = [as_number(label_name(value)) for _, value in named]
    first_word = next((place for place, number in enumerate(numbers) if number is None), None)
    if first_word is None:
        classes = {float(number) for number in numbers if number is not None}
        whole = all(number.is_integer() for number in classes)
        return "classification" if whole and len(classes) <= MOST_CLASSES else "regression"
    if sum(number is not None for number in numbers) > len(numbers) / 2:
        index, value = named[first_word]
        raise TaskError(
            f"{table.where(index)}: the label is {value!r}, and most others are numbers: fix the row, or use "
            "--task_type classification if both are classes."
        )
    return "classification"


def kind_of_model(config: Any, name: str) -> str:
    """What a trained model was trained for."""
    heads = config.architectures or []
    for kind in KINDS.values():
        if kind.head and kind.fits(heads):
            regression = kind.name == "classification" and (
                config.problem_type == "regression" or config.num_labels == 1
            )
            return "regression" if regression else kind.name
    raise TaskError(
        f"{name} has no head for a task (it is {heads[0] if heads else 'a bare model'}): train it first, or, if it "
        "embeds texts, use --task embedding."
    )


def own_task(kind: str, labels: Sequence[str] | None = None) -> Task:
    """A task named by its kind. Tags that look like entities are scored as entities."""
    from .tagging import ENTITY

    found = KINDS["classification" if kind == "pair" else kind]
    metrics = found.default_metrics
    if found.name == "classification" and labels is not None and len(labels) == 2:
        metrics = ("accuracy", "f1", "matthews")
    if found.words and labels and all(label == "O" or label[:2] in ("B-", "I-") for label in labels):
        metrics = ENTITY
    named = tuple(labels) if labels is not None else None
    return Task(found.name, "the user's own data", found, metrics, named if found.classes else ())


def check_classes(table: Table, columns: Columns, labels: Sequence[str], kind: str) -> None:
    """One class is nothing to learn; as many as rows are no classes."""
    if kind != "classification":
        return
    if len(labels) < 2:
        raise TaskError(f"{table.origin}: all labels in {columns.label!r} are {label_name(labels[0])!r}.")
    if len(table) > 20 and len(labels) > len(table) / 2:
        raise TaskError(
            f"{table.origin}: {len(labels)} different labels in {len(table)} rows: is {columns.label!r} the label? "
            "For numbers use --task_type regression."
        )
