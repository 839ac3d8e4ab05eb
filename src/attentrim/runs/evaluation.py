"""How models are evaluated: on which data, and which of the numbers go into a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformers import EvalPrediction, Trainer, TrainingArguments

from ..control import Control
from ..engines import given_once
from ..errors import MethodError
from ..in_order import OrderedTrainer
from ..plan import Plan

PREFIX = "eval"
TIMES = ("_runtime", "_per_second", "_time")
"""How the names of numbers end that are about the evaluation itself."""


class _Plain(OrderedTrainer):
    """Evaluates a model that is whole in each process, whatever engine trains another one there."""

    def create_accelerator_and_postprocess(self) -> None:
        with given_once(self.args):
            super().create_accelerator_and_postprocess()
        self.is_deepspeed_enabled = self.is_fsdp_enabled = False


@dataclass(frozen=True)
class Evaluation:
    """Data with known answers, and how the outputs of a model on it become metrics."""

    task: str
    metric: str
    """The one that results are compared by."""
    data: Any
    examples: int
    data_collator: Any
    compute_metrics: Callable[[Any], dict[str, float]] | None
    reduce_outputs: Callable[[Any, Any], Any] | None
    names: Sequence[str] | None = None
    """The metrics that are reported; None: all that `compute_metrics` gives."""
    most_rows: int = 64
    """The default batch size."""
    more_sets: Mapping[str, Callable[[], Evaluation]] = field(default_factory=dict)
    """Other sets that are reported on too, by name, and how to get them."""
    judge: Callable[[Any], dict[str, float]] | None = None
    """The same as `compute_metrics`, of data without labels that can be judged all the same."""

    def of_trainer(self, trainer: Trainer) -> float:
        """The metric of the model of a Trainer as it is, its method's masks included."""
        found = self._metrics(trainer.predict(self.data, metric_key_prefix=PREFIX).metrics or {})
        if self.metric not in found:
            raise MethodError(f"compute_metrics gives no {self.metric!r}; it gives {', '.join(found)}.")
        return found[self.metric]

    def of_model(self, model: Any, args: TrainingArguments, plan: Plan | None = None) -> tuple[dict[str, Any], Any]:
        """The result of a model on all sets, and its outputs on this one; with a plan, as if it had been trimmed."""
        if plan is not None:
            with Control(model) as control:
                control.apply(plan)
                return self.of_model(model, args)
        result, outputs = self._on_this_set(model, args)
        for name, load in self.more_sets.items():
            found, _ = load()._on_this_set(model, args)
            result["metrics"] |= {f"{name}_{metric}": value for metric, value in found["metrics"].items()}
        return result, outputs

    def reference(self, model: Any, args: TrainingArguments, of: str) -> dict[str, Any]:
        """What a result says under `before`: the metrics of another model, and which one that is."""
        found, _ = self._on_this_set(model, args)
        return {"of": of, "value": found["value"], "metrics": found["metrics"]}

    def _on_this_set(self, model: Any, args: TrainingArguments) -> tuple[dict[str, Any], Any]:
        """Without labels there are no metrics."""
        trainer = _Plain(
            model=model,
            args=args,
            data_collator=self.data_collator,
            eval_dataset=self.data,
            compute_metrics=self.compute_metrics,
            preprocess_logits_for_metrics=self.reduce_outputs,
        )
        found = trainer.predict(self.data, metric_key_prefix=PREFIX)
        if found.label_ids is None and self.judge is not None:
            metrics = self.judge(EvalPrediction(found.predictions, None))  # type: ignore[arg-type]
        else:
            metrics = self._metrics(found.metrics or {})
        result = {
            "task": self.task,
            "metric": self.metric,
            "value": metrics.get(self.metric),
            "metrics": metrics,
            "examples": self.examples,
        }
        return result, found.predictions

    def _metrics(self, found: Mapping[str, Any]) -> dict[str, float]:
        numbers = {name.removeprefix(f"{PREFIX}_"): value for name, value in found.items()}
        if self.names is not None:
            return {name: float(numbers[name]) for name in self.names if name in numbers}
        return {
            name: float(value)
            for name, value in numbers.items()
            if isinstance(value, int | float) and not name.endswith(TIMES)
        }
