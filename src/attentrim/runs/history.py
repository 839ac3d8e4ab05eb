"""The history of a run: one line per line of the log, written as it happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ..atomic import explaining, write_text
from ..checkpoint.stored import stored_plan
from ..sites import find_sites, unwrap
from .reader import HISTORY

if TYPE_CHECKING:
    from ..methods.session import Session


class HistoryWriter(TrainerCallback):
    """One line of `history.jsonl` for each line of the log, with the gates of the moment."""

    def __init__(self, directory: Path, trainer: Any) -> None:
        self.path = directory / HISTORY
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A new run starts a new file, with the state before the first step; a resumed run keeps it."""
        if not state.is_world_process_zero:
            return
        if state.global_step and self.path.is_file():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            # one from before the first step, and one for each of the log as the checkpoint has it
            write_text(self.path, "".join(f"{line}\n" for line in lines[: 1 + len(state.log_history)]))
        else:
            write_text(self.path, "")
            self._add(
                {"step": state.global_step, "epoch": state.epoch or 0.0, "heads": original_heads(self.trainer.model)}
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._add({"step": state.global_step, "epoch": state.epoch, **(logs or {})})

    def _add(self, line: dict[str, Any]) -> None:
        session: Session | None = self.trainer.session
        with explaining(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, **(session.record() if session else {})}) + "\n")


def original_heads(model: Any) -> list[list[int]]:
    """By site, the heads that a model has, as the full model numbers them: a run may start from a trimmed one."""
    plan = stored_plan(unwrap(model))
    sites = find_sites(model)
    return [plan.kept("heads", site.index) if plan and site.heads else list(range(site.heads)) for site in sites]
