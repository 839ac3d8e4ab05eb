"""transformers' Trainer with a method at work beside it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import Subset, random_split
from transformers.trainer_utils import get_last_checkpoint

from .calibration import Calibration, HeldOut
from .distillation import distillation_loss
from .duplicate import duplicate
from .errors import MethodError, TrainingError
from .methods import METHODS, Method
from .methods.callback import MethodCallback
from .methods.session import Session
from .modes import evaluating
from .noise import disturbed
from .plan import Plan
from .schedules import restarted
from .sites import unwrap

_SPEEDS = ("_runtime", "_per_second", "_preparation_time")
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
        if self.method is not None and not isinstance(self.method, Method):
            raise MethodError(f"method must be a method such as AutoAttention(), or its name. Got {method!r} instead.")
        super().__init__(*args, **kwargs)
        if self.method is None:
            return
        self._check_method(self.method)
        if self.teacher is not None:
            self.teacher = self.teacher.to(self.args.device).eval().requires_grad_(False)
        self._hold_out(self.method.holdout)
        self.session = self._attach()
        self._driver = _Driver(self, self.session)
        self.add_callback(self._driver)

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

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        inputs = self._prepare_inputs(inputs)

        def run() -> Tensor:
            return self._forward_backward(model, dict(inputs), *args, **kwargs)

        return run() if self.session is None else self.session.play(run, inputs)

    def _forward_backward(self, *args: Any, **kwargs: Any) -> Tensor:
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
        asked, said = inputs, outputs
        if self.method.distill_noise:
            special = getattr(self.processing_class, "all_special_ids", ())
            asked = disturbed(inputs, self.method.distill_noise, special)
            said = model(**asked, **wanted)
        with torch.no_grad():
            # labels too: an encoder-decoder makes its decoder's inputs from them
            answers = self.teacher(**asked, **wanted)
        distance = distillation_loss(
            said,
            answers,
            asked,
            logits=self.method.distill_logits,
            hidden=self.method.distill_hidden,
            temperature=self.method.distill_temperature,
        )
        # the Trainer divides a loss by the number of accumulated batches unless it is normalised already
        normalised = self.model_accepts_loss_kwargs and num_items_in_batch is not None
        if normalised or self.compute_loss_func is not None:
            distance = distance / self.current_gradient_accumulation_steps
        loss = self.method.label_weight * loss + distance
        return (loss, outputs) if return_outputs else loss

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
        with evaluating(model), torch.no_grad():
            outputs = [model(**inputs, num_items_in_batch=count) for count in (items, 2 * items)]
        once, twice = (float(output["loss"] if isinstance(output, dict) else output[0]) for output in outputs)
        self.model_accepts_loss_kwargs = once != twice

    def clip(self) -> None:
        """Clip the gradients as they are, as the training loop does before each step."""
        if self.args.max_grad_norm and self.args.max_grad_norm > 0:
            self.accelerator.clip_grad_norm_(self.model_wrapped.parameters(), self.args.max_grad_norm)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        dense = round(self.method.dense * num_training_steps) if self.method is not None else 0
        if dense and self._created_lr_scheduler:
            optimizer = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = scheduler = restarted(self.args, optimizer, dense, num_training_steps)
        return scheduler

    # Evaluating, logging, saving, choosing

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the stock Trainer's; networks that train beside the model are evaluated too, and their metrics logged."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if self.session is not None and not isinstance(data, dict):
            for name, playing in self.session.companions().items():
                with playing, torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
                    found = self.predict(data, metric_key_prefix=name).metrics or {}
                self.session.note({key: value for key, value in found.items() if not key.endswith(_SPEEDS)})
        return super().evaluate(eval_dataset, *args, **kwargs)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **(self.session.metrics() if self.session else {})}, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.model.parameters()):
            raise TrainingError(
                f"The weights are not finite at step {self.state.global_step}: they are not saved. "
                f"{self._last_checkpoint()} A lower learning_rate is the usual cure."
            )
        if self.session is not None:
            self.session.check()
        super().save_model(output_dir, _internal_call)
        if self.session is not None and self.args.should_save:
            target = Path(output_dir or self.directory)
            self.session.save(target) if _internal_call else self.plan().save(target / "plan.json")

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """A model whose set of heads is not the final one cannot be the best."""
        if self.session is not None and not self.session.settled:
            return False
        return super()._determine_best_metric(metrics, trial)

    def _last_checkpoint(self) -> str:
        found = get_last_checkpoint(self.directory) if Path(self.directory).is_dir() else None
        return f"The last good checkpoint is {found}." if found else "No checkpoint was saved yet."

    # What a method needs of its surroundings

    def _check_method(self, method: Method) -> None:
        checkpointing: Any = self.args.gradient_checkpointing_kwargs or {}
        if self.args.gradient_checkpointing and checkpointing.get("use_reentrant"):
            raise MethodError("Gates cannot learn through reentrant checkpointing: leave use_reentrant at False.")
        if method.distills and self.teacher is None:
            if not method.dense:
                raise MethodError(
                    "Distillation needs a dense model: give a teacher, or have dense steps first "
                    "(dense_share; for attendout, a tune_share below 1)."
                )
            if hasattr(self.model, "peft_config"):
                raise MethodError("A PEFT model cannot be its own teacher: give Trainer(teacher=...).")
        if self.teacher is not None and unwrap(self.teacher) is unwrap(self.model):
            raise MethodError("The teacher must be another model, not the one that is trained: give it a copy.")

    def _attach(self) -> Session:
        assert self.method is not None
        samples = getattr(self.method, "calibration_samples", None)
        session = self.method.attach(
            self.model,
            calibration=Calibration(self, samples) if samples and self.train_dataset is not None else None,
            evaluate=self._holdout_metric if self._holdout is not None else None,
            held_out=self._held_out(getattr(self.method, "reward_source", None)),
            seed=self.args.seed,
        )
        session.shows_progress = not self.args.disable_tqdm
        return session

    def _held_out(self, source: str | None) -> HeldOut | None:
        """What a method draws rewards from."""
        data = {"train_split": self._holdout, "dev": self.eval_dataset, "noisy_train": self.train_dataset}.get(
            source or ""
        )
        if data is None or not hasattr(data, "__len__"):
            return None
        return HeldOut(self, data, getattr(self.method, "noise", 0.0) if source == "noisy_train" else 0.0)

    def _hold_out(self, share: float) -> None:
        if not share or self.train_dataset is None:
            return
        if not hasattr(self.train_dataset, "__len__"):
            raise MethodError("A part of the training data is to be held out: give a dataset that has a length.")
        rows = len(self.train_dataset)
        held = max(1, round(share * rows))
        if held >= rows:
            raise MethodError(f"Holding out {share:g} of {rows} training examples leaves none to train on.")
        generator = torch.Generator().manual_seed(self.args.seed)
        self.train_dataset, self._holdout = _split(self.train_dataset, held, generator)
        self._check_classes()

    def _check_classes(self) -> None:
        """A split at random can leave a rare class on one side only."""
        held, trained = set(_labels(self._holdout)), set()
        for label in _labels(self.train_dataset):
            trained.add(label)
            if held <= trained and len(trained) >= getattr(self.model.config, "num_labels", 0):
                break
        lost, unseen = sorted(held - trained), sorted(trained - held)
        if held and lost:
            raise MethodError(
                f"Holding out {len(self._holdout)} training examples leaves none of class {lost[0]} to train on: "
                "lower holdout_share, or take another seed."
            )
        if held and unseen:
            warnings.warn(
                f"None of the {len(self._holdout)} training examples held out is of class {unseen[0]}: what is judged "
                "on them does not see it.",
                stacklevel=2,
            )

    def _holdout_metric(self) -> float:
        """The metric that chooses models, on the held-out part; higher is better."""
        name = (self.args.metric_for_best_model or "loss").removeprefix("eval_")
        with evaluating(self.model):
            metrics = self.predict(self._holdout, metric_key_prefix="holdout").metrics or {}
        if f"holdout_{name}" not in metrics:
            raise MethodError(f"metric_for_best_model is {name!r}, which compute_metrics does not give.")
        value = float(metrics[f"holdout_{name}"])
        return value if self.args.greater_is_better else -value


def _split(data: Any, held: int, generator: torch.Generator) -> tuple[Any, Any]:
    """At random; rows that are parts of one example (`data.groups`) stay together."""
    groups = getattr(data, "groups", None)
    if groups is None:
        train, holdout = random_split(data, [len(data) - held, held], generator)
        return train, holdout
    order = torch.randperm(max(groups) + 1, generator=generator).tolist()
    chosen = set(order[: max(1, round(held / len(data) * len(order)))])
    sides: tuple[list[int], list[int]] = ([], [])
    for row, group in enumerate(groups):
        sides[group in chosen].append(row)
    return Subset(data, sides[0]), Subset(data, sides[1])


def _labels(data: Any) -> Iterator[int]:
    """The classes of examples that have one each; nothing for other data."""
    for row in data:
        label = row.get("labels", row.get("label")) if isinstance(row, Mapping) else None
        if isinstance(label, bool) or not isinstance(label, int):
            return
        yield label


class _Driver(MethodCallback):
    """The method's callback with what only its own Trainer can do: start over, resume, keep a teacher."""

    def __init__(self, trainer: Trainer, session: Session) -> None:
        super().__init__(session)
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        same_model = self.session.model is unwrap(trainer.model)
        if self.session.taken or not same_model or not self.session.control.attached:
            self.session.detach()
            self.session = trainer.session = trainer._attach()
        super().on_train_begin(args, state, control, **kwargs)
        if trainer._checkpoint is not None:
            self.session.load(trainer._checkpoint)
            self._find_teacher(Path(trainer._checkpoint).parent / DENSE_FOLDER, state)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.after_step(self.trainer.optimizer, self.trainer.clip)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """When the dense steps are done, the model as it is becomes the teacher."""
        trainer = self.trainer
        if self._wants_teacher and state.global_step == self._dense_steps(state):
            trainer.teacher = duplicate(unwrap(trainer.model), Tensor.clone).eval().requires_grad_(False)
            if state.is_world_process_zero:
                trainer.teacher.save_pretrained(Path(trainer.directory) / DENSE_FOLDER)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer itself saved the session, with the model."""

    @property
    def _wants_teacher(self) -> bool:
        return self.session.method.distills and self.trainer.teacher is None

    def _dense_steps(self, state: Any) -> int:
        return round(self.session.method.dense * int(state.max_steps))

    def _find_teacher(self, folder: Path, state: Any) -> None:
        if not self._wants_teacher or state.global_step < self._dense_steps(state):
            return
        if not folder.is_dir():
            raise MethodError(f"Cannot go on: the dense model to distil from is not in {folder}.")
        model = unwrap(self.trainer.model)
        stored = type(model).from_pretrained(folder, attn_implementation=model.config._attn_implementation)
        # in memory of its own, like the teacher of a run without a break: kernels round by where weights lie
        teacher = duplicate(stored, Tensor.clone)
        self.trainer.teacher = teacher.to(self.trainer.args.device).eval().requires_grad_(False)
