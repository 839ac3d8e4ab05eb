"""The list of modules that makes a model's directory one of sentence-transformers. Imports no torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..guarded import read_json

MODULES = "modules.json"


def module_folders(directory: Path) -> list[str]:
    """The folders in a directory that hold modules of sentence-transformers."""
    path = directory / MODULES
    listed = read_json(path, "the list of modules") if path.is_file() else None
    entries = listed if isinstance(listed, list) else []
    return [entry["path"] for entry in entries if is_entry(entry) and entry["path"]]


def is_entry(entry: Any) -> bool:
    """Its path may not lead out of the directory."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("type"), str)
        and isinstance(entry.get("path"), str)
        and re.fullmatch(r"(\w[\w.-]*)?", entry["path"]) is not None
    )
