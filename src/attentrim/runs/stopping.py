"""SIGTERM and Ctrl-C: the step in hand is finished, a checkpoint saved, and then the run ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import TrainerCallback

from ..methods.processes import highest
from .remarks import Say

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """A run that was told to stop, and saved what it had."""

    def __init__(self, number: int, step: int, steps: int) -> None:
        super().__init__(f"stopped after step {step} of {steps}, which is saved")
        self.number = number


class StopOnSignal(TrainerCallback):
    """While `listening`, a first signal has the Trainer save and stop; a second one ends it at once.

    Of several processes, one that got a signal stops all, after the same step.
    """

    def __init__(self, say: Say) -> None:
        self.say = say
        self.number = 0
        """The signal that this process got."""
        self.agreed = 0
        """The signal that all of them stop for."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
        self.say("\nstopping after this step; a second signal stops at once, and loses it")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.agreed = highest(self.number, args.device)
        if self.agreed:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.agreed:
            args.distributed_state.wait_for_everyone()  # a launcher ends all when the first has ended
            raise Stopped(self.agreed, state.global_step, state.max_steps)
