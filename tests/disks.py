"""Disks that are full, files that may not grow, directories that cannot be written to."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """No file can grow beyond a size: writers are told so in the midst of it, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def disk(place: Path, size: int = 2**30) -> Iterator[Path]:
    """A disk of its own at `place`, where the system allows it."""
    place.mkdir(exist_ok=True)
    size = max(size // PAGE, 1) * PAGE
    found = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    if found.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Nothing can be written to a directory. Root may write wherever a disk can."""
    if os.geteuid():
        modes = {path: path.stat().st_mode for path in (place, *place.rglob("*")) if path.is_dir()}
        for path in modes:
            path.chmod(0o555)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    for command in (["mount", "--bind", place, place], ["mount", "-o", "remount,bind,ro", place]):
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def used(place: Path) -> int:
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def content(directory: Path) -> dict[str, str]:
    """Every file with its hash."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
