"""What a run writes into its directory while it trains and at its end; `reader` reads it again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import SCRATCH, staged
from ..card import try_card
from ..machine import measured_with
from .attention import AttentionLog
from .files import write_json, write_yaml
from .history import HistoryWriter
from .reader import ATTENTION, BENCH, CARD, CONFIG, METRICS, PLAN

if TYPE_CHECKING:
    from ..trainer import Trainer


class RunWriter:
    """Writes history and attention, beginning now, and everything else when it is told.

    Args:
        trainer: Before training.
        directory: Where everything goes; results of a run that was there before are removed.
        batches: Model inputs, one example each, whose attention is kept.
        sentences: The same as people read them.
        base: The name or directory of the model that training starts from.
    """

    def __init__(
        self,
        trainer: Trainer,
        directory: Path,
        batches: Sequence[Mapping[str, Any]],
        sentences: Sequence[str],
        base: str | None,
    ) -> None:
        self.trainer, self.directory, self.base = trainer, directory, base
        self.main = trainer.is_world_process_zero()
        """Of several processes, the first one writes."""
        self.machine = measured_with()
        directory.mkdir(parents=True, exist_ok=True)
        if self.main:
            for pattern in (METRICS, PLAN, BENCH, ATTENTION, SCRATCH):
                for path in directory.glob(pattern):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        trainer.add_callback(HistoryWriter(directory, trainer))
        self.attention = AttentionLog(trainer.processing_class, batches, sentences)
        self.take_attention("before")

    def take_attention(self, moment: str) -> None:
        """Of the model as it is, with its method's masks at work."""
        self.attention.take(self.trainer.model, moment, self.trainer.session)

    def write_config(self, settings: Mapping[str, Any]) -> None:
        if self.main:
            write_yaml(self.directory / CONFIG, settings)

    def write_results(self, result: Mapping[str, Any], final: Any, speed: Mapping[str, Any]) -> None:
        """Everything beside the checkpoint, at the end; `speed` may be empty.

        The metrics come last: a directory that has them holds a finished run.
        """
        if not self.main:
            return
        session = self.trainer.session
        with staged(self.directory, copied=(CARD, CONFIG, PLAN), last=METRICS) as stage:
            self.attention.write(stage / ATTENTION)
            write_json(stage / METRICS, {**result, **({"last": session.metrics()} if session else {})})
            if speed:
                write_json(stage / BENCH, speed)
            try_card(stage, final, base=self.base or None, measured=True)
