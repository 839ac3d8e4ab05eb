"""The end of every run: evaluate, trim, save, load what was saved, evaluate that, time it, write everything down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench import measure
from ..bench.backends import has_sdpa
from ..bench.record import bench_record
from ..card import known_as
from ..checkpoint.saving import saving
from ..checkpoint.stored import stored_plan
from ..cost import Cost, cost
from ..duplicate import whole
from ..machine import peak_memory
from ..plan import Plan
from ..sites import unwrap
from ..speed.target import Target
from ..surgery import trim as trim_model
from ..tasks.metrics import LOWER_IS_BETTER
from .adapters import merged
from .evaluation import Evaluation
from .facts import facts
from .headline import DENSE, number
from .milestones import own_speed, saved_model, speeds_left
from .reader import PLAN, measured_speedup
from .writer import RunWriter

if TYPE_CHECKING:
    from ..trainer import Trainer

BENCH_SHAPE, BENCH_REPEATS, PADDING = (8, 128), 9, 0.125
"""Sequences and tokens (or as many as the model was trained with) that the final model is timed with."""
MUCH_BETTER = 0.02
"""By how much a smaller model is better than the dense one before that one is said to have been trained too little."""


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    trainer: Trainer
    """Its model has the full shape."""
    final: Any
    """The model as it loads from the run's directory."""
    result: dict[str, Any]
    speed: dict[str, Any]
    """Empty where nothing was timed."""
    sizes: tuple[Cost, Cost]
    """Before and after."""
    plan: Plan
    """What is gone from the final model, in the numbering of the full model."""


def finish(
    writer: RunWriter,
    evaluation: Evaluation,
    *,
    trim: bool = True,
    bench: bool = True,
    longest: int = BENCH_SHAPE[1],
    remarks: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Finished:
    """Finish a run whose training has ended.

    Args:
        longest: Tokens of the longest input that the model was trained with.
        remarks: What a reader of the result must know, beside what the method has to say.
        more: Goes into the result as it is.
    """
    trainer = writer.trainer
    masked_value = evaluation.of_trainer(trainer)
    said = _what_the_method_says(trainer, evaluation, remarks)
    writer.take_attention("after")
    session = trainer.session
    from_method = session.results() if session else {}
    target = (session.speed_target if session else None) or _usual_target(trainer, longest)
    plan = trainer.plan()
    if session is not None:
        session.detach()
    trainer.model = merged(trainer.model)
    dense = whole(trainer.model, everywhere=False)
    saved = _save(trainer, dense, plan, writer.directory, trim)
    measured, _ = evaluation.of_model(saved.model, trainer.args, saved.still_masked or None)
    sizes = cost(trainer.model), cost(saved.model)
    timed = bench and saved.still_masked is None and writer.main and (session is None or session.timed_here)
    speed = _speed(writer, saved.model, dense, target) if timed else {}
    result = {
        **measured,
        **facts(saved.model, saved.plan, *sizes),
        **_about_training(writer, saved.model),
        "masked_value": masked_value,
        "measured_with": writer.machine,
        **(more or {}),
        **_dense_result(trainer, evaluation),
        "speedup_measured": measured_speedup(speed),
        **from_method,
        **said,
    }
    if weak := _weak_reference(result):
        result["remarks"] = [*result.get("remarks", []), weak]
    if session is not None and len(session.speeds_asked) > 1:

        def speed_of(model: Any) -> float | None:
            return measured_speedup(_speed(writer, model, dense, target)) if timed else None

        asked = session.speeds_asked
        left = speeds_left(trainer, writer.directory, evaluation, asked, speed_of)
        result["speeds"] = [*left, own_speed(asked[-1], result)]
    writer.write_results(result, saved.model, speed)
    return Finished(trainer, saved.model, result, speed, sizes, saved.plan)


def _what_the_method_says(trainer: Trainer, evaluation: Evaluation, remarks: Sequence[str]) -> dict[str, Any]:
    """The metric of other ways to use the trained model, and remarks; nothing where there are none."""
    session = trainer.session
    alternatives = {}
    for name, holds in (session.alternatives() if session else {}).items():
        with holds:
            alternatives[name] = evaluation.of_trainer(trainer)
    remarks = [*remarks, *(session.remarks() if session else [])]
    return {
        **({"alternatives": alternatives} if alternatives else {}),
        **({"remarks": remarks} if remarks else {}),
    }


@dataclass(frozen=True)
class _Saved:
    model: Any
    """As it loads from disk."""
    plan: Plan
    """What is gone from it, in the numbering of the full model."""
    still_masked: Plan | None
    """What must be masked in it, if it kept its full shape; None if it was trimmed."""


def _dense_result(trainer: Trainer, evaluation: Evaluation) -> dict[str, Any]:
    """What there was to lose, where the run has a dense model of its own: trained on the same data as the final one,
    it is a better reference than whatever the run started from."""
    dense = trainer.dense_model
    return {} if dense is None else {"before": evaluation.reference(dense, trainer.args, DENSE)}


def _weak_reference(result: Mapping[str, Any]) -> str | None:
    """A dense model that its smaller copy surpasses tells nothing of what was lost, and was a poor teacher."""
    before, value = (result.get("before") or {}).get("value"), result["value"]
    if before is None or value is None or not result["removed"] or result["metric"] in LOWER_IS_BETTER:
        return None
    if not value > before + MUCH_BETTER:
        return None
    return (
        f"The smaller model is better than the dense one ({number(value)} against {number(before)}), which was not "
        "trained long enough to show what was lost or to be a good teacher: train it for more epochs first."
    )


def _save(trainer: Trainer, dense: Any, plan: Plan, directory: Path, trim: bool) -> _Saved:
    """Trim `dense`, which has all weights in the main process, and load what that saves in all of them."""
    trimmed = bool(plan) and trim
    if trainer.is_world_process_zero():
        final = trim_model(dense, plan) if trimmed else dense
        with saving(directory) as stage:
            final.save_pretrained(stage)
            if trainer.processing_class is not None:
                trainer.processing_class.save_pretrained(stage)
            # what the checkpoint is, in the full model's numbering, even if it had been trimmed before
            (stored_plan(final) or plan).save(stage / PLAN)
    trainer.accelerator.wait_for_everyone()
    final = saved_model(trainer, directory)
    return _Saved(final, stored_plan(final) or plan, None if trimmed else plan)


def _about_training(writer: RunWriter, final: Any) -> dict[str, Any]:
    trainer = writer.trainer
    return {
        "output_dir": str(writer.directory),
        "train_seconds": _last_logged(trainer, "train_runtime") or 0.0,
        "train_loss": _last_logged(trainer, "loss"),
        "peak_memory_bytes": peak_memory(),
        "model": known_as(writer.base) if writer.base else type(final).__name__,
        "method": trainer.method.name if trainer.method else "none",
        "seed": trainer.args.seed,
    }


def _last_logged(trainer: Trainer, name: str) -> float | None:
    logged = [line[name] for line in trainer.state.log_history if name in line]
    return float(logged[-1]) if logged else None


def _usual_target(trainer: Trainer, longest: int) -> Target:
    device = "cuda" if trainer.args.device.type == "cuda" else "cpu"
    backend = "sdpa" if has_sdpa(unwrap(trainer.model)) else "eager"
    return Target(BENCH_SHAPE[0], min(BENCH_SHAPE[1], longest), "float32", backend, device)


def _speed(writer: RunWriter, final: Any, dense: Any, target: Target) -> dict[str, Any]:
    """The trimmed model timed beside the one that it was cut from."""
    rows = measure(
        final,
        dense,
        shapes=[(target.batch, target.length)],
        dtypes=[target.dtype],
        devices=[target.device],
        backends=[target.backend],
        repeats=BENCH_REPEATS,
        padding=PADDING,
    )
    sizes = (cost(final, length=target.length), cost(dense, length=target.length))
    names = (str(writer.directory), "the same model before trimming")
    return bench_record(names, sizes, rows, writer.machine, BENCH_REPEATS, PADDING)
