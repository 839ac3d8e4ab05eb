"""SWAG: which of four endings continues the sentences."""

from __future__ import annotations

from .base import TASKS, Hub, Local, Task
from .examples import Columns
from .kinds import KINDS
from .tables import Table, read_csv

ENDINGS = tuple(f"ending{number}" for number in range(4))


def _begin_endings(table: Table) -> Table:
    """An ending continues the second sentence."""
    rows = [
        {**row, **{name: f"{row['sent2']} {row[name]}" for name in ENDINGS if "sent2" in row and name in row}}
        for row in table.rows
    ]
    return Table(table.origin, table.columns, rows, table.numbers, table.unit)


COLUMNS = Columns("sent1", "label", choices=ENDINGS)
TASKS.register(
    "swag",
    Task(
        "swag",
        "which of four endings is the likely one? (accuracy)",
        KINDS["choice"],
        ("accuracy",),
        (),
        Local({"train": ("train.csv",), "validation": ("val.csv",), "test": ("test.csv",)}, read_csv, COLUMNS),
        Hub("allenai/swag", COLUMNS, config="regular"),
        adapt=_begin_endings,
    ),
)
