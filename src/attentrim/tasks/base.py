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
    """How a task is published as files: one per split, the first that is there of several names."""

    files: Mapping[str, tuple[str, ...]]
    read: Callable[[Path], Table]
    columns: Columns
    whole: bool = False
    """A name is a directory that is read as one, where it is not a file."""

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
    """Where a task lies on the hub."""

    path: str
    columns: Columns
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)
    """Splits that have another name there."""


@dataclass(frozen=True)
class Task:
    """What is asked of a model, how its answers are judged, and where the data comes from."""

    name: str
    summary: str
    kind: Kind
    """How examples are encoded and answers judged: one of `KINDS`."""
    metrics: tuple[str, ...]
    """The first is the task's own; the others are reported beside it."""
    labels: tuple[str, ...] | None = ()
    """The classes or tags in the order of their numbers; None: those of the training data."""
    local: Local | None = None
    hub: Hub | None = None
    generate: Callable[[str], Table] | None = None
    """Makes a split, for a task that needs no files."""
    adapt: Callable[[Table], Table] | None = None
    """Changes tables as published into those that `columns` speak of."""
    columns: Columns = field(default_factory=lambda: Columns("text", "label"))
    """Of generated tables, and of the user's own."""
    more_sets: Mapping[str, str] = field(default_factory=dict)
    """Other sets that a result is reported on too: a name, and the split."""
    max_length: int | None = None
    """Tokens of an input, unless told otherwise; None: as is usual for its kind."""
    files_names: bool = False
    """Whether a submission names the classes; else their numbers are filed."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, Kind):
            raise TaskError(f"The kind of the task {self.name!r} must be one of KINDS. Got {self.kind!r} instead.")

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def held_out_metric(self) -> str:
        """What is judged by on training data that was held out."""
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
        """The classes or tags that occur, in order: numbers by size, words by letter, and O before all tags."""
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
