"""Readable names of models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..guarded import read_json, read_text
from ..runs.reader import CARD, METRICS, Recorded
from ..tasks import TASKS

LONGEST_NAME = 60
READERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".txt": "text"}


def known_as(base: str) -> str:
    """The model that a run began with, the title of a model's card, or the last part of its name."""
    name = base.replace("\\", "/").rstrip("/").rpartition("/")[2] or base
    directory = Path(base)
    if not directory.is_dir():
        return name
    told = _metrics(directory).get("model")
    if isinstance(told, str):
        return told
    try:
        heading = re.search(r"^# +(\S.*)$", read_text(directory / CARD), re.MULTILINE)
    except (OSError, AttentrimError):
        return name
    return heading[1].strip() if heading and len(heading[1]) <= LONGEST_NAME else name


def trained_with(base: str) -> str | None:
    """The method by which a run made this model, if one did."""
    method = _metrics(Path(base)).get("method")
    return method if isinstance(method, str) and method != "none" else None


def hub_name(base: str | None, card: str = "") -> str | None:
    """The name of a model on the hub: its own, that of the cache's directory, or the one that its card loads it by."""
    if not base or not Path(base).is_dir():
        return base
    cached = re.search(r"models--([\w.-]+?)--([\w.-]+)", base)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    title = re.search(r"^# +(\S+)[ \t]*$", card, re.MULTILINE)
    quoted = re.findall(r"""\(\s*["']([\w.-]+/[\w.-]+)["']""", card)
    return next((name for name in quoted if title and name.rpartition("/")[2] == title[1]), None)


def dataset_of(run: Recorded) -> dict[str, str]:
    """The data of a run as an entry of a model index. Files have the name of what `datasets` reads them with."""
    if run.data == run.task:
        hub = TASKS[run.task].hub if run.task in TASKS else None
        found = {"name": run.task, "type": hub.path if hub else run.task}
        return found | ({"config": hub.config} if hub and hub.config else {})
    own = str(run.config.get("train_file") or run.config.get("dataset"))
    return {"name": run.data, "type": READERS.get(Path(own).suffix.lower(), run.data)}


def _metrics(directory: Path) -> dict[str, Any]:
    try:
        data = read_json(directory / METRICS, "the result")
    except AttentrimError:
        return {}
    return data if isinstance(data, dict) else {}
