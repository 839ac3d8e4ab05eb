"""Read and write JSON and YAML. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..atomic import write_text
from ..errors import AttentrimError
from ..guarded import parse_yaml, read_text


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_yaml(path: Path, data: Mapping[str, Any]) -> None:
    import yaml

    write_text(path, yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))


def read_config(path: str | Path, *, follow: bool = True) -> dict[str, Any]:
    """A YAML mapping of flags without their dashes. `follow`: through links, as of a file that a user has named."""
    try:
        data = parse_yaml(read_text(path, follow=follow))
    except OSError as error:
        raise AttentrimError(f"Cannot read the config {path}: {error.strerror}.") from error
    except AttentrimError as error:
        raise AttentrimError(f"Cannot read the config {path}: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise AttentrimError(f"{path} must be a mapping of flags to values, such as 'task: cola'.")
    return data
