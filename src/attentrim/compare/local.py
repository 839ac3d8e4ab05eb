"""Runs in processes of this machine, so that one that fails takes nothing with it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from pathlib import Path
from typing import Any

from .making import DONE, ERROR, LOG, make

PRELOADED = ("attentrim.runs.pipeline", "sklearn.metrics")
"""What every run imports: once for all."""


class Local:
    """Processes forked from a server that has imported everything and used nothing: no GPU, no threads."""

    def __init__(self, jobs: int | None) -> None:
        self.jobs = jobs or 1
        self.context: Any = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(PRELOADED))
        self.running: set[Any] = set()
        self.stopped = False

    def run(self, directory: Path) -> str | None:
        process = self.context.Process(target=_run, args=(directory, self.jobs), daemon=True)
        if self.stopped:
            return "stopped"
        process.start()
        self.running.add(process)
        process.join()
        self.running.discard(process)
        if (directory / DONE).is_file():  # how a process ended is not always learned from the server that forked it
            return None
        return _reason(directory / LOG, process.exitcode)

    def stop(self) -> None:
        self.stopped = True
        for process in list(self.running):
            process.terminate()

    def close(self) -> None:
        """Nothing is left of processes that have ended."""


def _reason(log: Path, code: int | None) -> str:
    """The last error in a log, or how the process ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)]
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
    return errors[-1] if errors else f"{how}; see {log}"


def _run(directory: Path, jobs: int) -> None:
    """In the process."""
    import torch

    _die_with_the_comparison()
    if jobs > 1:
        # more threads than cores would wait for each other
        torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
    sys.exit(make(directory) is not None)


def _die_with_the_comparison() -> None:
    """A comparison that is killed must not leave runs behind that write where the next one does."""
    comparison = multiprocessing.parent_process()
    assert comparison is not None

    def watch() -> None:
        comparison.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
