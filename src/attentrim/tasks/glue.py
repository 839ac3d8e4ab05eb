"""Tasks of the GLUE benchmark, in its published layout: tab-separated, where a quote is a character like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import TaskError
from .base import TASKS, Example, Task


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, cells) of a file. Only a line feed ends a row: other separators may stand inside a sentence."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not a UTF-8 text file: {error.reason} at byte {error.start}.") from error
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line]


def _reader(
    text: int, label: int, pair: int | None = None, header: tuple[str, ...] = ()
) -> Callable[[Path], list[Example]]:
    """Reads files with these columns; with a header, checks that it is the expected one."""
    columns = 1 + max(text, label, pair or 0)

    def read(path: Path) -> list[Example]:
        rows = _rows(path)
        if header:
            found = tuple(name.strip() for name in rows[0][1]) if rows else ()
            if found[:columns] != header[:columns]:
                raise TaskError(f"{path} must begin with the columns {', '.join(header)}. Got {', '.join(found)}.")
            rows = rows[1:]
        return [_example(path, number, cells) for number, cells in rows]

    def _example(path: Path, number: int, cells: list[str]) -> Example:
        if len(cells) < columns:
            raise TaskError(f"{path}, line {number}: {columns} columns are needed, {len(cells)} found.")
        if cells[label].strip() not in ("0", "1"):
            raise TaskError(f"{path}, line {number}: the label must be 0 or 1. Got {cells[label]!r}.")
        return Example(cells[text], int(cells[label]), None if pair is None else cells[pair])

    return read


TASKS.register(
    "cola",
    Task(
        "cola",
        "is the sentence acceptable English? (Matthews correlation)",
        ("unacceptable", "acceptable"),
        ("matthews", "accuracy"),
        _reader(text=3, label=1),
    ),
)
TASKS.register(
    "sst2",
    Task(
        "sst2",
        "is the film review positive? (accuracy)",
        ("negative", "positive"),
        ("accuracy",),
        _reader(text=0, label=1, header=("sentence", "label")),
    ),
)
TASKS.register(
    "mrpc",
    Task(
        "mrpc",
        "do the two sentences say the same? (F1, accuracy)",
        ("different", "equivalent"),
        ("f1", "accuracy"),
        _reader(text=3, label=0, pair=4, header=("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")),
    ),
)
