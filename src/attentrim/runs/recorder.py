"""Keep what a report needs of a run that a script trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MethodError
from .evaluation import Evaluation
from .finish import finish
from .training import changed_arguments
from .writer import RunWriter

if TYPE_CHECKING:
    from ..trainer import Trainer

LONGEST = 128
"""Tokens of a sentence whose attention is kept."""


class RunRecorder:
    """Writes a run directory: checkpoint, plan, metrics, history, attention, speed and model card.

        recorder = RunRecorder(trainer, "run", sentences=["The keys to the cabinet are here."])
        trainer.train()
        small = recorder.finish(metric="accuracy", task="my task")

    Then `attentrim report --run run` shows it.

    Args:
        trainer: An attentrim Trainer, before training.
        directory: Where to write.
        sentences: Texts whose attention is recorded before and after training; needs the trainer's processing_class.
        batches: The same as model inputs, one example each, with `sentences` as the readable texts.
        base: The name or directory of the model that training starts from; by default taken from the model's config.
    """

    def __init__(
        self,
        trainer: Trainer,
        directory: str | Path,
        *,
        sentences: Sequence[str] = (),
        batches: Sequence[Mapping[str, Any]] | None = None,
        base: str | None = None,
    ) -> None:
        if isinstance(sentences, str):
            raise MethodError("'sentences' must be a list of texts: put a single one in brackets.")
        if isinstance(trainer.eval_dataset, dict) or not hasattr(trainer.eval_dataset, "__len__"):
            raise MethodError("The run is evaluated at its end: give the Trainer one eval_dataset that has a length.")
        tokenizer: Any = trainer.processing_class
        if sentences and tokenizer is None:
            raise MethodError("Sentences need a tokenizer: give the Trainer a processing_class.")
        if batches is None:
            batches = [
                dict(tokenizer(text, return_tensors="pt", truncation=True, max_length=LONGEST)) for text in sentences
            ]
        base = base or str(getattr(trainer.model.config, "_name_or_path", "") or "")
        self.trainer = trainer
        self.directory = Path(directory)
        self.writer = RunWriter(trainer, self.directory, batches, sentences, base)

    def finish(self, metric: str, task: str, *, trim: bool = True) -> Any:
        """After training: evaluate, trim by the method's plan, save, time, and write the results.

        `metric` is one of the metrics of the Trainer's compute_metrics, `task` the name of the data in the report.
        Returns the final model.
        """
        trainer = self.trainer
        evaluation = Evaluation(
            task=task,
            metric=metric,
            data=trainer.eval_dataset,
            examples=len(trainer.eval_dataset),
            data_collator=trainer.data_collator,
            compute_metrics=trainer.compute_metrics,
            reduce_outputs=trainer.preprocess_logits_for_metrics,
        )
        self.writer.write_config(self._settings(task))
        return finish(self.writer, evaluation, trim=trim).final

    def _settings(self, task: str) -> dict[str, Any]:
        method = self.trainer.method
        own = {"model": self.writer.base or None, "task_name": task, "method": method.name if method else "none"}
        settings = {"method_config": method.settings} if method else {}
        flags = self.trainer.distillation.flags if self.trainer.distillation else {}
        return {**own, **flags, **settings, "seed": self.trainer.args.seed, **changed_arguments(self.trainer.args)}
