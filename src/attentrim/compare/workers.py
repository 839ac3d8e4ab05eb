"""Runs in processes of their own, so that one that fails takes nothing with it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from ..errors import AttentrimError
from ..guarded import read_json
from ..runs.settings import RunSettings

SETTINGS, LOG, DONE = "settings.json", "log.txt", "done"
PRELOADED = ("attentrim.runs.pipeline", "sklearn.metrics")
"""What every run imports: once for all."""
ERROR = "error: "
"""What the line in a log begins with that says why a run failed."""


class Workers:
    """Processes forked from a server that has imported everything and used nothing: no GPU, no threads."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.context: Any = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(list(PRELOADED))
        self.running: set[Any] = set()
        self.stopped = False

    def run(self, directory: Path) -> str | None:
        """Make the run whose settings are in a directory; why it failed, or None."""
        process = self.context.Process(target=_run, args=(str(directory), self.jobs), daemon=True)
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


def _reason(log: Path, code: int | None) -> str:
    """The last error in a log, or how the process ended."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    errors = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)]
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
    return errors[-1] if errors else f"{how}; see {log}"


def _run(directory: str, jobs: int) -> None:
    """In the process: the run with the settings in its directory, its remarks and errors in a log."""
    import torch

    from ..runs.pipeline import run

    _die_with_the_comparison()
    if jobs > 1:
        # more threads than cores would wait for each other
        torch.set_num_threads(max(1, torch.get_num_threads() // jobs))
    log = os.open(f"{directory}/{LOG}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    settings = read_json(Path(directory, SETTINGS), "the settings")
    # runs share the machine: a speed measured here would be of all of them
    own = {"output_dir": directory, "no_bench": True}
    try:
        run(RunSettings.from_mapping({"disable_tqdm": True, **settings, **own}), say=_say)
    except Exception as error:
        if not isinstance(error, AttentrimError):
            traceback.print_exc()
        named = str(error) if isinstance(error, AttentrimError) else f"{type(error).__name__}: {error}"
        _say(f"{ERROR}{' '.join(named.split())}")
        sys.exit(1)
    Path(directory, DONE).touch()


def _say(remark: str) -> None:
    sys.stdout.write(f"{remark}\n")
    sys.stdout.flush()


def _die_with_the_comparison() -> None:
    """A comparison that is killed must not leave runs behind that write where the next one does."""
    comparison = multiprocessing.parent_process()
    assert comparison is not None

    def watch() -> None:
        comparison.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
