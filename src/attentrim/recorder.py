"""Keep what a report needs of a run: `attentrim train` does it this way, and so can a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import MethodError
from .recorded import ATTENTION, BENCH, CONFIG, METRICS, PLAN

if TYPE_CHECKING:
    from .plan import Plan
    from .trainer import Trainer

BENCH_SHAPE, BENCH_REPEATS, PADDING = (8, 128), 9, 0.125
"""Sequences and tokens (or as many as the model was trained with) that the final model is timed with."""
LONGEST = 128
"""Tokens of a sentence whose attention is kept."""


class RunRecorder:
    """Makes the directory of a run: checkpoint, plan, metrics, history, attention, speed and model card.

        recorder = RunRecorder(trainer, "run", sentences=["The keys to the cabinet are here."])
        trainer.train()
        small = recorder.finish(metric="accuracy", task="my task")

    Then `attentrim report --run run` shows it.

    Args:
        trainer: Of attentrim, before training.
        directory: Where everything goes.
        sentences: Texts whose attention is kept, before training and after; they need the trainer's processing_class.
        batches: The same as model inputs, one example each, with `sentences` as people read them.
        base: The name or directory of the model that training starts from; by default what the model's config says.
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
        from .machine import measured_with
        from .run_files import AttentionLog, HistoryWriter

        if isinstance(sentences, str):
            raise MethodError("'sentences' is a list of texts: put the one into brackets.")
        if isinstance(trainer.eval_dataset, dict) or not hasattr(trainer.eval_dataset, "__len__"):
            raise MethodError("A run is judged at its end: give the Trainer one eval_dataset that has a length.")
        self.trainer = trainer
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        if trainer.is_world_process_zero():
            for name in (METRICS, PLAN, BENCH, ATTENTION):
                (self.directory / name).unlink(missing_ok=True)  # of a run that was here before
        self.machine = measured_with()
        self.base = base or str(getattr(trainer.model.config, "_name_or_path", "") or "")
        tokenizer: Any = trainer.processing_class
        if sentences and tokenizer is None:
            raise MethodError("Sentences need a tokenizer: give the Trainer a processing_class.")
        if batches is None:
            batches = [
                dict(tokenizer(text, return_tensors="pt", truncation=True, max_length=LONGEST)) for text in sentences
            ]
        trainer.add_callback(HistoryWriter(self.directory, trainer))
        self.attention = AttentionLog(tokenizer, batches, sentences)
        self.attention.take(trainer.model, "before", trainer.session)

    def finish(self, metric: str, task: str, *, trim: bool = True) -> Any:
        """After training: evaluate, trim by the method's plan, save, time, and write everything down.

        `metric` is one of those that the Trainer's compute_metrics gives, `task` what the report calls the data.
        Returns the final model.
        """
        from transformers import Trainer as StockTrainer

        from .control import Control

        trainer = self.trainer
        masked = self._metrics(trainer)
        if metric not in masked:
            raise MethodError(f"compute_metrics gives no {metric!r}; it gives {', '.join(masked)}.")
        self.take_after()
        final, plan, masked_by = self.save(trim=trim)
        with ExitStack() as stack:
            if masked_by:
                stack.enter_context(Control(final)).apply(masked_by)
            judge = StockTrainer(
                model=final,
                args=trainer.args,
                data_collator=trainer.data_collator,
                eval_dataset=trainer.eval_dataset,
                compute_metrics=trainer.compute_metrics,
                preprocess_logits_for_metrics=trainer.preprocess_logits_for_metrics,
            )
            metrics = self._metrics(judge)
        self._write_config(task)
        result = {
            "task": task,
            "metric": metric,
            "value": metrics[metric],
            "metrics": metrics,
            "examples": len(trainer.eval_dataset),
            **self.facts(final, plan, masked[metric]),
        }
        self.write(result, final, {} if masked_by is not None else self.speed(final))
        return final

    def _metrics(self, trainer: Any) -> dict[str, float]:
        found = trainer.predict(self.trainer.eval_dataset, metric_key_prefix="eval").metrics or {}
        speeds = ("_runtime", "_per_second", "_time")
        return {
            name.removeprefix("eval_"): float(value)
            for name, value in found.items()
            if isinstance(value, int | float) and not name.endswith(speeds)
        }

    def _write_config(self, task: str) -> None:
        from .run_files import changed_arguments, write_yaml

        method = self.trainer.method
        own = {"model": self.base or None, "task_name": task, "method": method.name if method else "none"}
        settings = {"method_config": method.settings} if method else {}
        distilled = self.trainer.distillation.flags if self.trainer.distillation else {}
        training = {"seed": self.trainer.args.seed, **changed_arguments(self.trainer.args)}
        write_yaml(self.directory / CONFIG, {**own, **distilled, **settings, **training})

    # The parts

    def take_after(self) -> None:
        """The attention of the trained model, with its masks at work: before the method is detached."""
        self.attention.take(self.trainer.model, "after", self.trainer.session)

    def save(self, *, trim: bool = True) -> tuple[Any, Plan, Plan | None]:
        """Trim and save; then the model as it loads from disk, what is gone from it, what is still to be masked."""
        from .checkpoint.stored import stored_plan
        from .sites import unwrap
        from .surgery import trim as trim_model

        trainer, plan = self.trainer, self.trainer.plan()
        trimmed = bool(plan) and trim
        if trainer.session is not None:
            trainer.session.detach()
        kind = type(unwrap(trainer.model))
        if trainer.is_world_process_zero():
            final = trim_model(trainer.model, plan) if trimmed else trainer.model
            final.save_pretrained(self.directory)
            if trainer.processing_class is not None:
                trainer.processing_class.save_pretrained(self.directory)
            # what the checkpoint is, in the full model's numbering, even if it had been trimmed before
            (stored_plan(final) or plan).save(self.directory / PLAN)
        trainer.accelerator.wait_for_everyone()
        final = kind.from_pretrained(self.directory).eval()
        return final, stored_plan(final) or plan, None if trimmed else plan

    def facts(self, final: Any, plan: Plan, masked_value: float) -> dict[str, Any]:
        """What every run's result says of the model, beside its metrics."""
        from .card import known_as
        from .checkpoint.stored import stored_plan
        from .machine import peak_memory

        trainer = self.trainer
        return {
            **plan.facts(),
            "parameters": sum(parameter.numel() for parameter in final.parameters()),
            "output_dir": str(self.directory),
            "train_seconds": _last_logged(trainer, "train_runtime") or 0.0,
            "train_loss": _last_logged(trainer, "loss"),
            "peak_memory_bytes": peak_memory(),
            "model": known_as(self.base) if self.base else type(final).__name__,
            "method": trainer.method.name if trainer.method else "none",
            "seed": trainer.args.seed,
            "trimmed": stored_plan(final) is not None,
            "masked_value": masked_value,
            "measured_with": self.machine,
        }

    def speed(self, final: Any, longest: int = BENCH_SHAPE[1]) -> dict[str, Any]:
        """The trimmed model timed beside the one that it was cut from."""
        from .bench import measure
        from .bench.backends import has_sdpa
        from .bench.record import bench_record
        from .cost import cost

        dense = self.trainer.model
        shape = (BENCH_SHAPE[0], min(BENCH_SHAPE[1], longest))
        rows = measure(
            final,
            dense,
            shapes=[shape],
            devices=["cuda" if self.trainer.args.device.type == "cuda" else "cpu"],
            backends=["sdpa" if has_sdpa(final) else "eager"],
            repeats=BENCH_REPEATS,
            padding=PADDING,
        )
        sizes = (cost(final, length=shape[1]), cost(dense, length=shape[1]))
        names = (str(self.directory), "itself before it was trimmed")
        return bench_record(names, sizes, rows, self.machine, BENCH_REPEATS, PADDING)

    def write(self, result: Mapping[str, Any], final: Any, speed: Mapping[str, Any]) -> None:
        """Everything beside the checkpoint, at the end."""
        from .card import try_card
        from .run_files import write_json

        if not self.trainer.is_world_process_zero():
            return
        self.attention.write(self.directory / ATTENTION)
        session = self.trainer.session
        write_json(self.directory / METRICS, {**result, **({"last": session.metrics()} if session else {})})
        if speed:
            write_json(self.directory / BENCH, speed)
        try_card(self.directory, final, base=self.base or None, measured=True)


def _last_logged(trainer: Any, name: str) -> float | None:
    logged = [line[name] for line in trainer.state.log_history if name in line]
    return float(logged[-1]) if logged else None
