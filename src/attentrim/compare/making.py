"""One run of a comparison, from the settings in its directory, in a process that does nothing else."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from ..errors import AttentrimError
from ..guarded import read_json
from ..runs.settings import RunSettings

SETTINGS, LOG, DONE = "settings.json", "log.txt", "done"
ERROR = "error: "
"""What the line in a log begins with that says why a run failed."""


def make(directory: Path) -> str | None:
    """Make the run with the settings in its directory; why it failed, or None. Remarks and errors go to a log."""
    from ..runs.pipeline import run

    # a log that is there already is of a process that was lost: what it left goes
    own = {"output_dir": str(directory), "no_bench": True, "overwrite_output_dir": (directory / LOG).is_file()}
    # no_bench: runs share the machine, and a speed measured here would be of all of them
    log = os.open(directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    settings = read_json(directory / SETTINGS, "the settings")
    try:
        run(RunSettings.from_mapping({"disable_tqdm": True, **settings, **own}), say=_say)
    except Exception as error:
        if not isinstance(error, AttentrimError):
            traceback.print_exc()
        reason = " ".join(
            (str(error) if isinstance(error, AttentrimError) else f"{type(error).__name__}: {error}").split()
        )
        _say(f"{ERROR}{reason}")
        return reason
    (directory / DONE).touch()
    return None


def _say(remark: str) -> None:
    sys.stdout.write(f"{remark}\n")
    sys.stdout.flush()
