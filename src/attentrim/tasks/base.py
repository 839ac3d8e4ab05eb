"""What a task is. Imports no torch until data is encoded."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import TaskError, unknown_name
from ..plugins import PlugIns
from ..registry import Registry
from .examples import Columns, label_name, missing_column
from .kinds import EncodedDataset, Kind
from .metrics import LOWER_IS_BETTER
from .tables import Table


@dataclass(frozen=True)
class Local:
    """The files in which a task is published: for each split, the first of several names that exists."""

    files: Mapping[str, tuple[str, ...]]
    read: Callable[[Path], Table]
    columns: Columns
    whole: bool = False
    """Whether a name may be a directory that is read as one file."""

    def path(self, task: str, data_dir: str | Path, split: str) -> Path:
        if split not in self.files:
            raise TaskError(f"{task}: " + unknown_name("split", split, self.files))
        for name in self.files[split]:
            path = Path(data_dir) / name
            if path.is_file() or (self.whole and path.is_dir()):
                return path
        names = " or ".join(str(Path(data_dir) / name) for name in self.files[split])
        held = " and ".join(names[0] for split, names in self.files.items() if split in ("train", "validation"))
        raise TaskError(f"There is no file {names}: for {task}, --data_dir is the directory that holds {held}.")


@dataclass(frozen=True)
class Hub:
    """Where a task is on the hub."""

    path: str
    columns: Columns
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)
    """Splits that have another name on the hub."""


@dataclass(frozen=True)
class Task:
    """What a model should predict, how predictions are scored, and where the data comes from."""

    name: str
    summary: str
    kind: Kind
    """How examples are encoded and predictions scored: one of `KINDS`."""
    metrics: tuple[str, ...]
    """The first is the main metric; the others are reported too."""
    labels: tuple[str, ...] | None = ()
    """The classes or tags in the order of their numbers; None: taken from the training data."""
    local: Local | None = None
    hub: Hub | None = None
    generate: Callable[[str], Table] | None = None
    """Makes a split, for a task that needs no files."""
    adapt: Callable[[Table], Table] | None = None
    """Converts published tables into tables with the columns in `columns`."""
    columns: Columns = field(default_factory=lambda: Columns("text", "label"))
    """The columns of generated tables, and of the user's own data."""
    more_sets: Mapping[str, str] = field(default_factory=dict)
    """Further splits to report results on, by name."""
    max_length: int | None = None
    """Maximum input length in tokens unless told otherwise; None: as is usual for its kind."""
    files_names: bool = False
    """Whether a submission contains the names of classes instead of their numbers."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, Kind):
            raise TaskError(f"The kind of the task {self.name!r} must be one of KINDS. Got {self.kind!r} instead.")

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def held_out_metric(self) -> str:
        """The metric to use on held-out training data."""
        return self.kind.held_out_metric(self.metrics)

    @property
    def higher_is_better(self) -> bool:
        return self.metric not in LOWER_IS_BETTER

    @property
    def named_labels(self) -> tuple[str, ...]:
        return self.labels or ()

    def with_labels(self, labels: Sequence[str]) -> Task:
        return dataclasses.replace(self, labels=tuple(labels))

    def labels_in(self, table: Table, columns: Columns) -> tuple[str, ...]:
        """The classes or tags that occur, in order: numbers by size, words alphabetically, and O before all tags."""
        if columns.label not in table.columns:
            raise missing_column(table, str(columns.label))
        if columns.label in table.class_names:
            return tuple(table.class_names[columns.label])
        found: set[str] = set()
        for row in table.rows:
            value = row.get(columns.label or "")
            if self.kind.words:
                value = value.split() if isinstance(value, str) else value
                found.update(label_name(tag) for tag in value or ())
            else:
                found.add(label_name(value))
        found.discard("")
        numeric = all(re.fullmatch(r"-?[0-9]+", name) for name in found)
        return tuple(sorted(found, key=lambda name: (name != "O", int(name) if numeric else 0, name)))

    def scorer(self, data: EncodedDataset) -> Callable[[Any], dict[str, float]]:
        """`compute_metrics` for a Trainer that evaluates on `data` and reduces outputs by `kind.reduce`."""

        def score(prediction: Any) -> dict[str, float]:
            return self.kind.judge(self.metrics, prediction.predictions, prediction.label_ids, data, self.named_labels)

        return score


TASKS: Registry[Task] = Registry(
    "task",
    PlugIns("attentrim.tasks", "an attentrim.tasks.Task", lambda entry: isinstance(entry, Task)),
)
