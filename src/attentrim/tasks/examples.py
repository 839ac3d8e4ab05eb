"""From rows to examples: which cell is what, and a clear line where one is not what it should be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TaskError, did_you_mean
from .tables import Row, Table

Label = int | float | tuple[int, ...] | None


@dataclass(frozen=True)
class Example:
    """One input and its answer."""

    text: str | tuple[str, ...]
    """Words, if each of them gets a tag."""
    label: Label
    """A class, a number, a tag for each word, the right choice; None where it is not known."""
    pair: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def written(self) -> str:
        """As people read it; of several choices, with the first."""
        text = self.text if isinstance(self.text, str) else " ".join(self.text)
        return " / ".join(part for part in (text, self.pair, *self.choices[:1]) if part)


@dataclass(frozen=True)
class Columns:
    """Which column holds what."""

    text: str
    label: str | None = None
    pair: str | None = None
    choices: tuple[str, ...] = ()
    index: str | None = None
    """A column with row numbers, for files of predictions."""

    def __post_init__(self) -> None:
        named = [name for name in (self.text, self.label, self.pair, *self.choices) if name]
        if len(set(named)) < len(named):
            raise TaskError(f"A column cannot have two meanings: {', '.join(named)}.")

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name in (self.text, self.pair, *self.choices) if name)


def read_examples(
    table: Table,
    columns: Columns,
    kind: str,
    labels: Sequence[str],
    labelled: bool,
    left_out: list[str] | None = None,
) -> list[Example]:
    """`labelled`: each row must have a label; else all have one, or none has. `left_out` takes what is wrong with rows
    that are skipped; without it the first is an error."""
    needed = [*columns.inputs, *([columns.label] if columns.label and labelled else [])]
    for name in needed:
        if name not in table.columns:
            raise missing_column(table, name)
    if table.problems and left_out is None:
        raise TaskError(bad_row(table.problems[0]))
    if left_out is not None:
        left_out.extend(table.problems)
    has_label = columns.label in table.columns and not _unlabelled(table, columns.label, labelled)
    index_of = {name: index for index, name in enumerate(labels)}
    examples = []
    for number, row in enumerate(table.rows):
        try:
            examples.append(_example(row, columns, kind, index_of, has_label))
        except _CellError as error:
            if left_out is None:
                raise TaskError(bad_row(f"{table.where(number)}: {error}")) from None
            left_out.append(f"{table.where(number)}: {error}")
    if not examples:
        raise TaskError(f"{table.origin} holds no examples.")
    return examples


def missing_column(table: Table, name: str) -> TaskError:
    hint = did_you_mean(name, table.columns)
    return TaskError(f"{table.origin} has no column {name!r}.{hint} It has: {', '.join(table.columns)}.")


def bad_row(problem: str) -> str:
    """What is wrong with a row, and what to do about it."""
    return f"{problem.rstrip('.')} (--skip_bad_rows skips such rows)."


class _CellError(Exception):
    """What is wrong with a cell; the row is known one level up."""


def _unlabelled(table: Table, column: str | None, labelled: bool) -> bool:
    """Published test sets have no labels, or -1 for all of them."""
    return not labelled and all(row.get(column or "") in (None, "", -1, "-1") for row in table.rows)


def _example(row: Row, columns: Columns, kind: str, index_of: Mapping[str, int], has_label: bool) -> Example:
    for name in columns.inputs:
        if name not in row:
            raise _CellError(_no_cell(name, row))
    label: Label = None
    if has_label and columns.label:
        if columns.label not in row:
            raise _CellError(_no_cell(columns.label, row))
        label = PARSERS[kind](row[columns.label], index_of, len(columns.choices))
    if kind == "tokens":
        words = _words(row[columns.text], columns.text)
        if isinstance(label, tuple) and len(label) != len(words):
            raise _CellError(f"there are {len(words)} words and {len(label)} tags.")
        return Example(words, label)
    pair = _text(row[columns.pair], columns.pair) if columns.pair else None
    choices = tuple(_text(row[name], name) for name in columns.choices)
    return Example(_text(row[columns.text], columns.text), label, pair, choices)


def _no_cell(name: str, row: Row) -> str:
    return f"there is no cell for the column {name!r} (the row has {len(row)})."


def _text(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise _CellError(f"{column!r} must be text. Got {_shown(value)}.")
    return value


def _words(value: Any, column: str) -> tuple[str, ...]:
    words = _listed(value)
    if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) for word in words):
        raise _CellError(f"{column!r} must be a list of words, or space-separated words. Got {_shown(value)}.")
    return tuple(words)


def _listed(value: Any) -> Any:
    """The words of a text are space-separated; a list that was written as text is not guessed at."""
    if isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]"):
        raise _CellError(f"this is a list written as text: {_shown(value)}. Use JSON lines for lists.")
    return value.split() if isinstance(value, str) else value


def _class(value: Any, index_of: Mapping[str, int], choices: int) -> int:
    """A class by its name or, where that is no name, by its number."""
    name = label_name(value)
    if name in index_of:
        return index_of[name]
    numbered = any(as_number(key) is not None for key in index_of)
    if name.isascii() and name.isdigit() and int(name) < len(index_of) and not numbered:
        return int(name)
    if not name:
        raise _CellError("the label is missing.")
    numbers = "" if numbered else f" (or {' or '.join(str(index) for index in range(len(index_of)))})"
    raise _CellError(f"the label must be one of: {', '.join(index_of)}{numbers}. Got {_shown(value)}.")


def as_number(value: Any) -> float | None:
    try:
        return float(value) if not isinstance(value, bool) else None
    except (TypeError, ValueError):
        return None


def label_name(value: Any) -> str:
    """How a label is spelt: 1, '1.0' and '1 ' stand in different files for one class. Nothing, or nan, is no label."""
    name = "" if value is None else str(value).strip()
    return "" if name.lower() == "nan" else re.sub(r"^(-?\d+)\.0+$", r"\1", name)


def _number(value: Any, index_of: Mapping[str, int], choices: int) -> float:
    number = as_number(value)
    if number is None or not math.isfinite(number):
        raise _CellError(f"the label must be a number. Got {_shown(value)}.")
    return number


def _tags(value: Any, index_of: Mapping[str, int], choices: int) -> tuple[int, ...]:
    tags = _listed(value)
    if not isinstance(tags, list | tuple):
        raise _CellError(f"the label must be a list of tags, one per word. Got {_shown(value)}.")
    return tuple(_class(tag, index_of, choices) for tag in tags)


def _choice(value: Any, index_of: Mapping[str, int], choices: int) -> int:
    name = label_name(value)
    if not (name.isascii() and name.isdigit() and int(name) < choices):
        raise _CellError(f"the label must be the number of the right choice, 0 to {choices - 1}. Got {_shown(value)}.")
    return int(name)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


PARSERS: dict[str, Callable[[Any, Mapping[str, int], int], Label]] = {
    "classification": _class,
    "regression": _number,
    "tokens": _tags,
    "choice": _choice,
    "mlm": lambda value, index_of, choices: None,
    "clm": lambda value, index_of, choices: None,
    "embedding": _number,
}
