"""transformers' Trainer with a method at work beside it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import IterableDataset, Subset, random_split
from transformers.trainer_utils import get_last_checkpoint

from .distillation import distillation_loss
from .duplicate import duplicate
from .errors import MethodError, TrainingError
from .methods import METHODS, Method
from .methods.callback import MethodCallback
from .methods.session import Session
from .plan import Plan
from .schedules import restarted
from .sites import unwrap

DENSE_FOLDER = "dense"
"""Where a run that distils from its own dense model keeps it."""


class Trainer(transformers.Trainer):
    """A transformers Trainer that trains with a method; all its arguments, in its order, and two more.

    Args:
        method: What decides which attention to drop: a method such as `AutoAttention()`, or its name. None: plain
            fine-tuning.
        teacher: The dense model to distil from, where the method's settings ask for distillation. Without one, the
            model that the method's dense steps leave is the teacher.

    While it trains and afterwards, `trainer.model` has its full shape and answers as if trimmed; `trainer.plan()` says
    what to remove, and `attentrim.trim(trainer.model, trainer.plan())` removes it.
    """

    model: Any
    train_dataset: Any
    eval_dataset: Any

    def __init__(self, *args: Any, method: Method | str | None = None, teacher: Any = None, **kwargs: Any) -> None:
        self.method = METHODS[method]() if isinstance(method, str) else method
        self.session: Session | None = None
        self.teacher = teacher
        self._holdout: Any = None
        self._checkpoint: str | None = None
        self._normalisation_checked = False
        if self.method is not None and self.method.distills and teacher is None and not self.method.dense:
            raise MethodError(
                "Distillation needs a dense model: give Trainer(teacher=...), or set dense_share, so that it is "
                "trained first."
            )
        super().__init__(*args, **kwargs)
        if self.teacher is not None:
            self.teacher = self.teacher.to(self.args.device).eval().requires_grad_(False)
        if self.method is None:
            return
        self._hold_out(self.method.holdout)
        self.session = self._attach()
        self._callback = MethodCallback(self.session)
        self.add_callback(_Lifecycle(self))
        self.add_callback(self._callback)

    def plan(self) -> Plan:
        """What the method would remove, as things stand. Empty without a method."""
        return Plan.of(self.model) if self.session is None else self.session.plan()

    @property
    def directory(self) -> str:
        return str(self.args.output_dir)

    # Training

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        found = get_last_checkpoint(self.directory) if resume_from_checkpoint is True else resume_from_checkpoint
        self._checkpoint = found or None
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"The loss is {float(loss)} at step {self.state.global_step + 1}: training stopped. "
                f"{self._last_checkpoint()} A lower learning_rate, or bf16 in place of fp16, is the usual cure."
            )
        return loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        self._check_normalisation(model, inputs, num_items_in_batch)
        if self.method is None or not self.method.distills or self.teacher is None or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        wanted = {"output_hidden_states": True} if self.method.distill_hidden else {}
        loss, outputs = super().compute_loss(model, {**inputs, **wanted}, True, num_items_in_batch)
        with torch.no_grad():
            answers = self.teacher(**{key: value for key, value in inputs.items() if key != "labels"}, **wanted)
        distance = distillation_loss(
            outputs,
            answers,
            inputs,
            logits=self.method.distill_logits,
            hidden=self.method.distill_hidden,
            temperature=self.method.distill_temperature,
        )
        # the Trainer divides a loss by the number of accumulated batches unless it is normalised already
        normalised = self.model_accepts_loss_kwargs and num_items_in_batch is not None
        if normalised or self.compute_loss_func is not None:
            distance = distance / self.current_gradient_accumulation_steps
        return (loss + distance, outputs) if return_outputs else loss + distance

    def _check_normalisation(self, model: nn.Module, inputs: dict[str, Any], items: Any) -> None:
        """See once whether the model's loss heeds the number of items, where gradients are accumulated.

        Many models take the number and ignore it; a Trainer that believed them would add up batch means rather than
        average them, and gates learn by the size of their gradients.
        """
        if self._normalisation_checked or items is None or not self.model_accepts_loss_kwargs or not model.training:
            return
        self._normalisation_checked = True
        if self.args.gradient_accumulation_steps == 1 or self.compute_loss_func or self.label_smoother:
            return
        modes = _modes(model)
        model.eval()
        with torch.no_grad():
            once, twice = (float(model(**inputs, num_items_in_batch=count)["loss"]) for count in (items, 2 * items))
        _restore_modes(modes)
        self.model_accepts_loss_kwargs = once != twice

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        dense = round(self.method.dense * num_training_steps) if self.method is not None else 0
        if dense and self._created_lr_scheduler:
            optimizer = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = scheduler = restarted(self.args, optimizer, dense, num_training_steps)
        return scheduler

    # Logging, saving, choosing

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **(self.session.metrics() if self.session else {})}, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.model.parameters()):
            raise TrainingError(
                f"The weights are not finite at step {self.state.global_step}: they are not saved. "
                f"{self._last_checkpoint()} A lower learning_rate is the usual cure."
            )
        super().save_model(output_dir, _internal_call)
        if self.session is not None and self.args.should_save:
            self.plan().save(Path(output_dir or self.directory) / "plan.json")

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """A model whose set of heads is not the final one cannot be the best."""
        if self.session is not None and not self.session.settled:
            return False
        return super()._determine_best_metric(metrics, trial)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        if self.session is not None:
            self.session.load(str(self.state.best_model_checkpoint))

    def _last_checkpoint(self) -> str:
        found = get_last_checkpoint(self.directory) if Path(self.directory).is_dir() else None
        return f"The last good checkpoint is {found}." if found else "No checkpoint was saved yet."

    # What a method needs of its surroundings

    def _attach(self) -> Session:
        assert self.method is not None
        samples = getattr(self.method, "calibration_samples", None)
        return self.method.attach(
            self.model,
            calibration=Calibration(self, samples) if samples and self.train_dataset is not None else None,
            evaluate=self._holdout_metric if self._holdout is not None else None,
            seed=self.args.seed,
        )

    def _hold_out(self, share: float) -> None:
        if not share or self.train_dataset is None:
            return
        if not hasattr(self.train_dataset, "__len__"):
            raise MethodError("A part of the training data is to be held out: give a dataset that has a length.")
        held = max(1, round(share * len(self.train_dataset)))
        generator = torch.Generator().manual_seed(self.args.seed)
        sizes = [len(self.train_dataset) - held, held]
        self.train_dataset, self._holdout = random_split(self.train_dataset, sizes, generator)

    def _holdout_metric(self) -> float:
        """The metric that chooses models, on the held-out part; higher is better."""
        name = (self.args.metric_for_best_model or "loss").removeprefix("eval_")
        modes = _modes(self.model)
        metrics = self.predict(self._holdout, metric_key_prefix="holdout").metrics or {}
        _restore_modes(modes)
        if f"holdout_{name}" not in metrics:
            raise MethodError(f"metric_for_best_model is {name!r}, which compute_metrics does not give.")
        value = float(metrics[f"holdout_{name}"])
        return value if self.args.greater_is_better else -value


class _Lifecycle(transformers.TrainerCallback):
    """Makes the session fit the run that begins, before the method's own callback sees it."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, session = self.trainer, self.trainer.session
        assert session is not None
        if session.model is not unwrap(trainer.model) or session.taken:
            session.detach()
            session = trainer.session = trainer._callback.session = trainer._attach()
        session.begin(state.max_steps)
        if trainer._checkpoint is not None:
            session.load(trainer._checkpoint)
            self._find_teacher(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """When the dense steps are done, the model as it is becomes the teacher."""
        trainer = self.trainer
        assert trainer.method is not None
        if trainer.teacher is not None or not trainer.method.distills:
            return
        if state.global_step == round(trainer.method.dense * state.max_steps):
            trainer.teacher = duplicate(unwrap(trainer.model), Tensor.clone).eval().requires_grad_(False)
            if state.is_world_process_zero:
                trainer.teacher.save_pretrained(Path(args.output_dir) / DENSE_FOLDER)

    def _find_teacher(self, state: Any) -> None:
        trainer = self.trainer
        assert trainer.method is not None
        past = state.global_step >= round(trainer.method.dense * state.max_steps)
        if trainer.teacher is None and trainer.method.distills and past:
            model = type(unwrap(trainer.model)).from_pretrained(Path(trainer.directory) / DENSE_FOLDER)
            trainer.teacher = model.to(trainer.args.device).eval().requires_grad_(False)


def _modes(model: nn.Module) -> list[tuple[nn.Module, bool]]:
    return [(module, module.training) for module in model.modules()]


def _restore_modes(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, training in modes:
        module.training = training


class Calibration:
    """The same few training examples, in batches, each time it is iterated."""

    def __init__(self, trainer: Trainer, samples: int) -> None:
        self.trainer = trainer
        self.samples = samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        data = self.trainer.train_dataset
        if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
            batches = -(-self.samples // self.trainer.args.eval_batch_size)
        else:
            generator = torch.Generator().manual_seed(self.trainer.args.seed)
            data = Subset(data, torch.randperm(len(data), generator=generator)[: self.samples].tolist())
            batches = None
        for batch in islice(self.trainer.get_test_dataloader(data), batches):
            yield dict(self.trainer._prepare_inputs(batch))
