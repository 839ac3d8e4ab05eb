"""The directory of a run: one process at a time, and no run in the place of another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import AttentrimError
from ..resuming import checkpoints_in, last_complete, nothing_to_resume
from .reader import ATTENTION, BENCH, CONFIG, HISTORY, METRICS, PLAN, is_run

LOCK = ".attentrim.lock"
OF_A_RUN = (
    *(METRICS, PLAN, BENCH, ATTENTION, HISTORY, CONFIG, "report.html", "config.json"),
    *("model*.safetensors", "model.safetensors.index.json", "checkpoint-*", "speedup-*", "dense"),
)
"""What a run leaves in its directory, but for its card, which is brought up to date."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Nobody else writes there meanwhile. Of several processes of one run, the first holds the lock.

    The system lets go of it when a process dies, however it does.
    """
    from filelock import FileLock, Timeout

    if int(os.environ.get("RANK", "0")):
        yield
        return
    lock = FileLock(directory / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AttentrimError(f"{directory} is in use: another attentrim is writing there.") from None
    except OSError as error:
        raise AttentrimError(f"Cannot write to {directory}: {error.strerror}.") from error
    try:
        yield
    finally:
        with suppress(PermissionError):  # on Windows, which removes the file of a lock when it is released
            (directory / LOCK).unlink(missing_ok=True)
        lock.release()


def checkpoint_to_resume(directory: Path, wanted: str | None, overwrite: bool) -> str | None:
    """Where a run resumes: at the given checkpoint, or at its own last one. None: it starts from the beginning.

    A finished run stays unless told otherwise.
    """
    if overwrite:
        if wanted:
            raise AttentrimError(
                "--overwrite_output_dir starts over, --resume_from_checkpoint resumes: give only one of them."
            )
        return None
    if wanted and wanted.lower() not in ("true", "false"):
        return wanted
    found = last_complete(directory)
    if wanted and wanted.lower() == "true" and found is not None:
        return found
    if not is_run(directory) and list(directory.glob("model*.safetensors")):
        raise AttentrimError(
            f"{directory} holds a model: choose another --output_dir, or replace it (--overwrite_output_dir)."
        )
    if (directory / METRICS).is_file():
        raise AttentrimError(
            f"{directory} holds a finished run: choose another --output_dir, or replace it (--overwrite_output_dir)."
        )
    if wanted and wanted.lower() == "true":
        raise AttentrimError(nothing_to_resume(directory))
    return None if wanted else found


def remove_checkpoints(directory: Path) -> int:
    """Take away the checkpoints of a run that has finished; the bytes that they took."""
    freed = 0
    for path in checkpoints_in(directory):
        freed += sum(file.stat().st_size for file in path.rglob("*"))
        shutil.rmtree(path)
    return freed


def clear_run(directory: Path) -> None:
    """Take away what a run left that is not gone on with."""
    for pattern in OF_A_RUN:
        for path in directory.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
