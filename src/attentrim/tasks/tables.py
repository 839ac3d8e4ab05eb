"""Rows with named cells from files of many kinds; each row knows where it stands, so that an error can say so."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError, TaskError, unknown_name

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """The rows of one file, or of one split of a data set."""

    origin: str
    """The file or the data set, for messages."""
    columns: tuple[str, ...]
    rows: Sequence[Row]
    numbers: Sequence[int]
    """Of each row: its line in a text file, else its place."""
    unit: str = "line"
    problems: Sequence[str] = ()
    """What is wrong with rows that could not be read, and are not among `rows`."""
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The classes of a column in their published order, where that is known."""
    blank: int = 0
    """Lines of a text file that hold nothing, and are not among `rows`."""

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, index: int) -> str:
        return f"{self.origin}, {self.unit} {self.numbers[index]}"

    def only(self, chosen: Sequence[int]) -> Table:
        """These rows alone."""
        rows, numbers = [self.rows[index] for index in chosen], [self.numbers[index] for index in chosen]
        return replace(self, rows=rows, numbers=numbers)


def read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise TaskError(
            f"{path}, line {line}: this is not UTF-8 text ({error.reason}); save the file as UTF-8."
        ) from None
    except OSError as error:
        raise TaskError(f"Cannot read {path}: {error.strerror}.") from error


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """(number, line). Only a line feed ends a line: other separators may stand inside a sentence."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        yield number, line.rstrip("\r")


def read_tabbed(path: Path, header: Sequence[str] = (), exact: bool = False) -> Table:
    """A file split by tabs alone, where a quote is a character like any other. `header`: the names, if it has none."""
    rows = [(number, line.split("\t")) for number, line in lines_of(path) if line]
    return _with_header(path, rows, header, exact, "cells are tab-separated")


def read_csv(path: Path) -> Table:
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        rows.extend((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as error:
        raise TaskError(f"{path}, line {reader.line_num}: {error}.") from None
    if rows and len(rows[0][1]) == 1 and ";" in rows[0][1][0]:
        raise TaskError(f"{path}: its cells seem to be separated by semicolons; a .csv file is comma-separated.")
    return _with_header(path, rows, (), True, "cells are comma-separated")


def _with_header(
    path: Path, rows: list[tuple[int, list[str]]], header: Sequence[str], exact: bool, rule: str
) -> Table:
    if not header and rows:
        header = [name.strip() for name in rows[0][1]]
        rows = rows[1:]
    if len(set(header)) < len(header):
        raise TaskError(f"{path} names a column twice: {', '.join(header)}.")
    problems = [
        f"{path}, line {number}: {len(header)} cells are needed ({', '.join(header)}), {len(cells)} found; {rule}."
        for number, cells in rows
        if exact and len(cells) != len(header)
    ]
    rows = [(number, cells) for number, cells in rows if not exact or len(cells) == len(header)]
    named = [dict(zip(header, cells, strict=False)) for _, cells in rows]
    return Table(str(path), tuple(header), named, [number for number, _ in rows], problems=problems)


def read_json_lines(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    problems: list[str] = []
    for number, line in lines_of(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}, line {number}: this is not JSON: {getattr(error, 'msg', error)}.")
            continue
        if isinstance(row, dict):
            rows.append(row)
            numbers.append(number)
        else:
            example = '{"text": ..., "label": ...}'
            problems.append(f"{path}, line {number}: a line must be an object, such as {example}.")
    return Table(str(path), _union(rows), rows, numbers, problems=problems)


def read_json(path: Path) -> Table:
    """A file that is one list of objects."""
    try:
        rows = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, TaskError):
            raise
        return read_json_lines(path)
    if isinstance(rows, dict) and len(read_text(path).strip().splitlines()) == 1:
        return read_json_lines(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TaskError(f'{path} must be a list of objects, such as [{{"text": ..., "label": ...}}].')
    return Table(str(path), _union(rows), rows, range(1, len(rows) + 1), "row")


def _union(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows for name in row))


def read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "datasets", "Reading Parquet") from error
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise TaskError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from error
    return Table(str(path), tuple(table.column_names), table.to_pylist(), range(1, len(table) + 1), "row")


def read_plain(path: Path) -> Table:
    """Running text: each line that is not blank is a row."""
    lines = list(lines_of(path))
    blank = sum(not line.strip() for _, line in lines[:-1])  # what follows the last line feed is no line
    found = [(number, line) for number, line in lines if line.strip()]
    rows, numbers = [{"text": line} for _, line in found], [number for number, _ in found]
    return Table(str(path), ("text",), rows, numbers, blank=blank)


def read_running(path: Path) -> Table:
    """One text of many lines: blank lines and line ends are part of it."""
    lines = [f"{line}\n" for _, line in lines_of(path)]
    rows = [{"text": line} for line in lines[: None if lines[-1].strip("\n") else -1]]
    return Table(str(path), ("text",), rows, range(1, len(rows) + 1))


def read_columns(path: Path, separator: str | None = None, tag: int = -1) -> Table:
    """One word per line, its tags beside it; a blank line ends a sentence. `tag` counts from 0, or from the end."""
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    words: list[str] = []
    tags: list[str] = []

    def close() -> None:
        if words:
            rows.append({"tokens": tuple(words), "tags": tuple(tags)})
        words.clear()
        tags.clear()

    for number, line in lines_of(path):
        if not line.strip() or line.startswith("-DOCSTART-"):
            close()
            continue
        cells = line.split("\t" if "\t" in line else separator)  # a word may hold a space
        if len(cells) < 2 or (tag >= 0 and len(cells) <= tag):
            needed = 2 if tag < 0 else tag + 1
            raise TaskError(f"{path}, line {number}: {needed} columns are needed, {len(cells)} found.")
        if not words:
            numbers.append(number)
        words.append(cells[0])
        tags.append(cells[tag].strip())
    close()
    return Table(str(path), ("tokens", "tags"), rows, numbers)


FORMATS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": lambda path: read_tabbed(path, exact=True),
    ".jsonl": read_json_lines,
    ".json": read_json,
    ".parquet": read_parquet,
    ".txt": read_plain,
    ".conll": read_columns,
    ".iob": read_columns,
    ".bio": read_columns,
}


RUNNING = {**FORMATS, ".txt": read_running}
"""The same, where the rows of a file are one text."""


def read_file(path: str | Path, formats: Mapping[str, Callable[[Path], Table]] = FORMATS) -> Table:
    """A file of the user's own, by its ending."""
    path = Path(path)
    if not path.is_file():
        raise TaskError(f"{path} is a directory." if path.is_dir() else f"There is no file {path}.")
    if path.suffix.lower() not in FORMATS:
        raise TaskError(f"{path}: " + unknown_name("kind of file", path.suffix, FORMATS))
    table = formats[path.suffix.lower()](path)
    if not table and not table.problems:
        raise TaskError(f"{path} holds no examples.")
    return table
