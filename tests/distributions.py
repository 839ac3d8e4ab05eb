"""Installed packages for tests: a directory that Python takes for a site-packages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(
    directory: Path, name: str, entry_points: Mapping[str, Mapping[str, str]], files: Mapping[str, str]
) -> Path:
    """A package with these entry points (by group, name: value) and files; `directory` must be on sys.path."""
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    info = directory / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return directory
