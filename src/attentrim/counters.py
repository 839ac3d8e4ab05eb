"""What a Trainer counts while it trains and keeps in no checkpoint: without it a resumed run logs other losses."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback

from .methods.processes import average

NAME = "attentrim"
"""Under which the Trainer's state holds them, among what callbacks keep there."""


class Counters(TrainerCallback):
    """The loss since the last line of the log, the loss in all, and the seconds.

    A run that was stopped and gone on with then reports as one run: its losses are those of a run without a break, its
    time is that of all of its parts.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.seconds_before = 0.0
        self._start = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, kept = self.trainer, state.stateful_callbacks.get(NAME) if state.global_step else None
        self.seconds_before, self._start = 0.0, time.time()
        if not kept:
            return
        self.seconds_before = kept["seconds"]
        trainer._tr_loss.fill_(kept["loss"])
        trainer._total_loss_scalar = kept["total_loss"]
        trainer._globalstep_last_logged = kept["logged_step"]
        trainer._initial_global_step = 0

    def keep(self) -> None:
        """Write them into the Trainer's state, before a checkpoint is saved."""
        trainer = self.trainer
        trainer.state.stateful_callbacks[NAME] = {
            "loss": float(average(trainer._tr_loss.clone())),
            "total_loss": trainer._total_loss_scalar,
            "logged_step": trainer._globalstep_last_logged,
            "seconds": self.seconds_before + time.time() - self._start,
        }
