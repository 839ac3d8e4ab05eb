"""What people call a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..guarded import read_json, read_text
from ..runs.reader import CARD, METRICS

LONGEST_NAME = 60


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


def _metrics(directory: Path) -> dict[str, Any]:
    try:
        data = read_json(directory / METRICS, "the result")
    except AttentrimError:
        return {}
    return data if isinstance(data, dict) else {}
