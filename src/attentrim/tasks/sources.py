"""Where the splits of a task come from: a local copy, the hub, files of the user's own, a generator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError, TaskError, unknown_name
from .base import Hub, Local, Task
from .examples import Columns, bad_row
from .tables import FORMATS, RUNNING, Table, read_file

SPLITS = ("train", "validation", "test")
SHARE_OF_VALIDATION = 0.1
"""Of the user's own rows, where no validation file is given."""


class Source:
    """Splits by name. `columns` says what their columns mean; it may be filled in once a table has been seen."""

    columns: Columns
    remark: str | None = None
    """What the user should know about how the splits came about."""

    def has(self, split: str) -> bool:
        """Whether there is such a split."""
        return True

    def check(self, split: str) -> None:
        """Find what is missing before seconds are spent on a model."""
        if not self.has(split):
            raise TaskError(f"There is no {split} data.")

    def label_table(self) -> Table:
        """The rows that say which labels there are."""
        return self.table("train")

    def as_running_text(self) -> None:
        """From now on rows are what one text consists of, rather than examples."""

    def table(self, split: str) -> Table:
        raise NotImplementedError


class LocalCopy(Source):
    """A directory in the layout in which a task is published."""

    def __init__(self, task: Task, local: Local, data_dir: str) -> None:
        self.task, self.local, self.data_dir = task, local, data_dir
        self.columns = local.columns

    def has(self, split: str) -> bool:
        try:
            self.check(split)
        except TaskError:
            return False
        return True

    def check(self, split: str) -> None:
        self.local.path(self.task.name, self.data_dir, split)

    def table(self, split: str) -> Table:
        return self.local.read(self.local.path(self.task.name, self.data_dir, split))


class Generated(Source):
    """Made on the spot."""

    def __init__(self, task: Task) -> None:
        assert task.generate is not None
        self.generate, self.columns = task.generate, task.columns

    def table(self, split: str) -> Table:
        return self.generate(split)


@dataclass
class HubCopy(Source):
    """A data set of the hub, or a directory that `datasets` can read."""

    name: str
    columns: Columns
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] | None = None
    remark: str | None = None

    @classmethod
    def of(cls, hub: Hub, mirror: str | None, config: str | None) -> HubCopy:
        revision = None if mirror else hub.revision
        return cls(mirror or hub.path, hub.columns, config or hub.config, revision, hub.splits)

    def table(self, split: str) -> Table:
        name = self._name(split)
        if name not in self._loaded():
            raise TaskError(f"{self.name}: " + unknown_name("split", name, self._loaded()))
        return _as_table(self._loaded()[name], f"{self.name}, split {name}")

    def has(self, split: str) -> bool:
        return self._name(split) in self._loaded()

    def check(self, split: str) -> None:
        """Looked at when it is loaded."""

    def _name(self, split: str) -> str:
        there = (self.splits or {}).get(split, split)
        return there if there in self._loaded() else split

    def _loaded(self) -> Any:
        if not hasattr(self, "_splits"):
            self._splits = load_dataset(self.name, self.config, self.revision)
        return self._splits


def load_dataset(name: str, config: str | None, revision: str | None) -> Any:
    """All splits of a saved or published data set. A directory may hold one part only, and no name for it."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets", "Loading a data set by name") from error
    try:
        if (Path(name) / "dataset_dict.json").is_file() or (Path(name) / "state.json").is_file():
            found = datasets.load_from_disk(name)
            return found if isinstance(found, datasets.DatasetDict) else {"train": found}
        parts = datasets.get_dataset_config_names(name) if Path(name).is_dir() else [config]
        return datasets.load_dataset(name, config if config in parts else None, revision=revision)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TaskError(
            f"Cannot load the data set {name!r}{f' ({config})' if config else ''}: {reason} "
            "A local copy works without the hub: give --data_dir, or --dataset with a directory."
        ) from error


def _as_table(data: Any, origin: str) -> Table:
    """Classes by name: a number in one data set need not be the same class in another."""
    names = {column: _class_names(feature) for column, feature in data.features.items()}
    rows = [{column: _named(value, names[column]) for column, value in row.items()} for row in data]
    classes = {column: tuple(known) for column, known in names.items() if known}
    return Table(origin, tuple(data.column_names), rows, range(1, len(rows) + 1), "row", class_names=classes)


def _class_names(feature: Any) -> list[str] | None:
    inner = getattr(feature, "feature", feature)
    return getattr(inner, "names", None)


def _named(value: Any, names: list[str] | None) -> Any:
    if names is None:
        return value
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


class OwnFiles(Source):
    """Files of the user's own."""

    def __init__(self, files: Mapping[str, str], columns: Columns) -> None:
        self.files, self.columns = files, columns
        self.tables: dict[str, Table] = {}
        """What was read; it is asked for again for labels, columns and rows."""
        self.formats = FORMATS

    def as_running_text(self) -> None:
        self.formats = RUNNING
        self.tables.clear()

    def has(self, split: str) -> bool:
        return split in self.files

    def check(self, split: str) -> None:
        if split not in SPLITS:
            raise TaskError(unknown_name("split", split, SPLITS))
        if split not in self.files:
            other = f", or use --split {next(iter(self.files))}" if self.files else ""
            raise TaskError(f"There is no {split} data: give --{split}_file{other}.")
        if not Path(self.files[split]).is_file():
            read_file(self.files[split])  # says what is wrong

    def table(self, split: str) -> Table:
        self.check(split)
        if split not in self.tables:
            self.tables[split] = read_file(self.files[split], self.formats)
        return self.tables[split]


class CutTrain(Source):
    """Rows of the training data serve for validation where there are no others: the same rows each time."""

    def __init__(self, whole: Source) -> None:
        self.whole = whole
        self.running = False
        self.remark = (
            f"there is no validation data: {SHARE_OF_VALIDATION:.0%} of the training rows, chosen at random with a "
            "fixed seed, are held out for it"
        )

    def as_running_text(self) -> None:
        self.whole.as_running_text()
        self.running = True
        self.remark = (
            f"there is no validation data: the last {SHARE_OF_VALIDATION:.0%} of the training rows are held out for it"
        )

    def check(self, split: str) -> None:
        self.whole.check("train" if split == "validation" else split)

    def label_table(self) -> Table:
        return self.whole.table("train")

    def table(self, split: str) -> Table:
        if split not in ("train", "validation"):
            return self.whole.table(split)
        return cut(self.whole.table("train"), split == "validation", at_random=not self.running)


def cut(table: Table, validation: bool, at_random: bool = True) -> Table:
    """One of the two parts of a table; the same rows each time."""
    if not table.rows:
        raise TaskError(bad_row(table.problems[0]) if table.problems else f"{table.origin} holds no examples.")
    count = max(1, round(SHARE_OF_VALIDATION * len(table)))
    rows = range(len(table))
    held = set(random.Random(0).sample(rows, count) if at_random else rows[-count:])
    if len(held) == len(table):
        raise TaskError(f"{table.origin} has too few rows to keep some for validation: give --validation_file.")
    return table.only([index for index in range(len(table)) if (index in held) == validation])
