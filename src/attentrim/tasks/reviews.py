"""IMDB film reviews, as published: one directory per class, one file per review."""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import TaskError
from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS
from .tables import Table, read_text

LABELS = ("neg", "pos")
NAME = re.compile(r"\d+_\d+\.txt")
"""A number and the stars that the review gave."""


def _read(path: Path) -> Table:
    rows = []
    for label in LABELS:
        if not (path / label).is_dir():
            raise TaskError(f"There is no directory {path / label}: for imdb, --data_dir holds train and test.")
        files = [file for file in (path / label).iterdir() if NAME.fullmatch(file.name)]
        if not files:
            raise TaskError(f"{path / label} holds no reviews: files such as 0_9.txt.")
        files.sort(key=lambda file: [int(number) for number in file.stem.split("_")])
        rows += [{"text": read_text(file), "label": label, "file": file.name} for file in files]
    return Table(str(path), ("text", "label", "file"), rows, range(1, len(rows) + 1), "review")


COLUMNS = Columns("text", "label")
TASKS.register(
    "imdb",
    Task(
        "imdb",
        "is the long film review positive? (accuracy; its test set serves as validation)",
        KINDS["classification"],
        ("accuracy",),
        LABELS,
        Local({"train": ("train",), "validation": ("test",), "test": ("test",)}, _read, COLUMNS, whole=True),
        Hub("stanfordnlp/imdb", COLUMNS, splits={"validation": "test"}),
        max_length=512,
    ),
)
