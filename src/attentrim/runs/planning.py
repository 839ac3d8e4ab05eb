"""A plan without training, what it costs, and the smaller model. `attentrim plan` is this."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Subset
from transformers import TrainingArguments

from ..checkpoint.saving import saving
from ..errors import MethodError
from ..fitting import fit_outputs
from ..machine import measured_with
from ..methods import Method
from ..plan import Plan
from ..speed.target import Target, complete_target
from ..speed.timing import speedup_of
from ..surgery import trim
from ..tasks.kinds import EncodedDataset
from ..tasks.metrics import score
from .evaluation import Evaluation
from .headline import headline, place
from .loading import Loaded
from .remarks import Say

FIT_EXAMPLES, JUDGED = 256, 1000
"""Training examples that outputs are fitted to, and others that a drop of the metric is judged on; where they are
blocks of a text, as many as make as many tokens of the usual length."""
USUAL_LENGTH = 128


@dataclass(frozen=True)
class Planned:
    """A plan, the model that it leaves, and what is known of both."""

    plan: Plan
    small: Any
    metric: str
    before: float | None
    value: float | None
    """None where there is no data to measure by."""
    speedup: float | None
    """Measured; None where nobody timed it."""
    target: Target
    result: dict[str, Any]
    """What the method has to say, for JSON."""
    remarks: Sequence[str]

    def headline(self, flops_ratio: float) -> str:
        at, on = (self.target.batch, self.target.length), place(self.target.device, measured_with(), here=True)
        return headline(
            self.metric, self.value, self.before, speedup=self.speedup, at=at, on=on, flops_ratio=flops_ratio
        )


def find_plan(
    loaded: Loaded,
    method: Method,
    *,
    fit: bool,
    bench: bool,
    seed: int,
    batch_size: int,
    device: str,
    max_eval_samples: int | None,
    say: Say,
) -> Planned:
    """Let a method choose what to remove from a trained model, and measure what that costs."""
    method.check_search()
    model = loaded.model.to(device)
    loaded.teacher, loaded.device = model, device  # where embeddings are to be kept, they are its own
    labelled = getattr(method, "use_labels", True)
    if method.data.holdout and not labelled and not loaded.task.kind.embeds:
        raise MethodError("max_drop is judged by the labels of training data: leave use_labels at true.")
    fitted, judged = (_examples(loaded, count) for count in (FIT_EXAMPLES, JUDGED))
    counts = [max(fitted, method.data.calibration), *([judged] if method.data.holdout else [])]
    data, *held = loaded.samples("train", counts, seed, labelled)
    judge = _judge(loaded, held[0]) if held else None
    batches = _batches(loaded, data, method.data.calibration or 1, batch_size)
    session = method.attach(model, calibration=batches, seed=seed)

    def made(plan: Plan) -> Any:
        examples = _batches(loaded, data, fitted, batch_size)
        return trim(fit_outputs(model, plan, examples) if fit else model, plan)

    try:
        remarks: list[str] = []
        if judge is None:
            session.search()
            plan = session.plan()
        else:
            plan, remarks = _fastest_within(session, made, judge, model, device, say)
        target = session.speed_target or complete_target(model, device=device)
        result = session.results() if plan else {}
        remarks += session.remarks()
        timed_here = session.timed_here
    finally:
        session.detach()
    small = made(plan) if plan else model
    values = _values([model, small], loaded, max_eval_samples, device)
    speedup = speedup_of(small, model, target) if bench and plan and timed_here else None
    return Planned(plan, small, loaded.task.metric, *values, speedup, target, result, remarks)


def _examples(loaded: Loaded, count: int) -> int:
    """So many examples of the usual length, in blocks where the task has any."""
    return max(1, count * USUAL_LENGTH // loaded.max_length) if loaded.task.kind.packs else count


def _judge(loaded: Loaded, data: EncodedDataset) -> Evaluation:
    return replace(loaded.evaluation(data, more_sets=False), metric=loaded.task.held_out_metric)


def _fastest_within(
    session: Any, made: Callable[[Plan], Any], judge: Evaluation, model: Any, device: str, say: Say
) -> tuple[Plan, list[str]]:
    """The fastest of several speeds whose metric on held-out training data is within a drop of the dense model's."""
    drop, speeds = session.method.max_drop, session.method.speedups
    with session.nothing_removed():
        mark = _value(model, judge, device)
    if math.isnan(mark):
        raise MethodError(f"max_drop is judged by {judge.metric}, which the held-out training data does not give.")
    best, found = Plan.of(model), [f"dense {mark:.4f}"]
    for speedup in speeds:
        session.search_speed(speedup)
        plan = session.plan()
        with session.nothing_removed():
            value = _value(made(plan), judge, device)
        found.append(f"{speedup:g} x {value:.4f}")
        say(f"{speedup:g} x: {judge.metric} on held-out training data is {value:.4f} (dense {mark:.4f})")
        if not score(judge.metric, mark) - score(judge.metric, value) <= drop:
            break
        best = plan
    words = f"within {drop:g} of the dense model on held-out training data ({', '.join(found)})"
    if not best:
        return best, [f"Nothing was removed: none of the speeds tried stayed {words}."]
    return best, [f"Kept the fastest model {words}."]


def _batches(loaded: Loaded, data: Any, samples: int, batch_size: int) -> Any:
    """Batches of the first examples, the shorter ones together: less padding to compute on."""
    chosen = list(range(min(samples, len(data))))
    chosen.sort(key=lambda row: len(data[row].get("input_ids", ())))
    return DataLoader(Subset(data, chosen), batch_size, collate_fn=loaded.task.kind.collator(loaded.tokenizer))


def _values(
    models: Sequence[Any], loaded: Loaded, limit: int | None, device: str
) -> tuple[float | None, float | None]:
    """The metric of the dense and of the smaller model on validation data."""
    evaluation = loaded.evaluation(loaded.data("validation", limit), more_sets=False)
    before, after = (_value(model, evaluation, device) for model in models)
    return before, after


def _value(model: Any, evaluation: Evaluation, device: str) -> float:
    with tempfile.TemporaryDirectory() as directory:
        arguments = TrainingArguments(
            directory,
            per_device_eval_batch_size=evaluation.most_rows,
            use_cpu=device == "cpu",
            report_to=[],
            disable_tqdm=True,
        )
        result, _ = evaluation.of_model(model, arguments)
    return float("nan") if result["value"] is None else float(result["value"])


def save_small(planned: Planned, loaded: Loaded, directory: Path) -> None:
    with saving(directory) as stage:
        planned.small.save_pretrained(stage)
        loaded.tokenizer.save_pretrained(stage)
        planned.plan.save(stage / "plan.json")
