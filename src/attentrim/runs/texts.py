"""Texts without labels: of the user's own files, of a task, and those that a model's directory names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import TaskError
from ..guarded import read_json
from ..tasks.examples import Columns, missing_column
from ..tasks.own import WORD_NAMES, Given, find_columns
from ..tasks.tables import Table, read_file
from .loading import adapted
from .remarks import Say, ignore
from .settings import TaskSettings
from .sources import find_source

PROMPTS = "config_sentence_transformers.json"


def texts_of_files(
    files: Iterable[str], text: str | None = None, pair: str | None = None, say: Say = ignore
) -> list[str]:
    """The texts of plain files, and of tables: their text columns as named, or by the usual names."""
    found: list[str] = []
    for file in files:
        table = read_file(file)
        several = len(table.columns) > 1  # plain text has no columns to name
        columns = find_columns(table, Given(text=text, pair=pair) if several else Given())
        if several:
            say(f"{file}: reading {' and '.join(repr(name) for name in columns.inputs)}")
        found.extend(_texts(table, columns, columns.text.lower() in WORD_NAMES))
    return found


def texts_of_task(settings: TaskSettings) -> list[str]:
    """The texts of a task's training data."""
    task, source = find_source(settings)
    assert task is not None
    source.check("train")
    return _texts(adapted(task, source.table("train")), source.columns, task.kind.words)


def prompts_of(model: str) -> list[str]:
    """What sentence-transformers puts before texts, as the model's directory says."""
    path = Path(model) / PROMPTS
    data: Any = read_json(path, "the model's prompts") if path.is_file() else {}
    prompts = data.get("prompts") if isinstance(data, dict) else None
    return [text for text in prompts.values() if isinstance(text, str) and text] if isinstance(prompts, dict) else []


def _texts(table: Table, columns: Columns, words: bool) -> list[str]:
    if table.problems:
        raise TaskError(table.problems[0])
    for name in columns.inputs:
        if name not in table.columns:
            raise missing_column(table, name)
    found = [text for number in range(len(table)) for text in _of_row(table, number, columns, words)]
    if not found:
        raise TaskError(f"{table.origin} holds no texts.")
    return found


def _of_row(table: Table, number: int, columns: Columns, words: bool) -> Iterator[str]:
    for name in columns.inputs:
        value = table.rows[number].get(name)
        if words and isinstance(value, str):
            value = value.split()
        if value is None or (isinstance(value, Sequence) and not value):
            continue
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
            for word in value:  # tokenizers may tell the first word of a text from others
                yield from (word, f" {word}")
        else:
            raise TaskError(f"{table.where(number)}: {name!r} must be text. Got {value!r}.")
