"""transformers' Trainer with a method at work beside it."""

from __future__ import annotations

import math
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .atomic import explained
from .calibration import Calibration, HeldOut, hold_out, special_ids
from .checkpoint.saving import saving
from .counters import Counters
from .distillation import Distillation
from .distillation.loss import loss_with_teacher
from .distillation.teacher import FOLDER, copy_as_teacher, frozen, load_as_teacher
from .duplicate import prepare_to_shard, whole
from .engines import check_engine, check_launched, engine_of, given_once, shard_by_layer
from .errors import MethodError, TrainingError
from .gguf import forget_gguf
from .in_order import OrderedTrainer
from .methods import METHODS, Method
from .methods.base import DataNeeds, distillation_for
from .methods.callback import MethodCallback
from .methods.processes import average
from .methods.session import Session
from .modes import evaluating
from .plan import Plan
from .resuming import (
    STATE,
    check_same_run,
    check_whole,
    fingerprint,
    last_complete,
    nothing_to_resume,
    write_fingerprint,
)
from .schedules import restarted
from .sentences.answers import Answered, embeddings_of
from .sentences.model import embeds
from .sharding import is_finite
from .sites import unwrap
from .tasks.metrics import LOWER_IS_BETTER, score

_SPEEDS = ("_runtime", "_per_second", "_preparation_time")


class Trainer(OrderedTrainer):
    """A transformers Trainer that trains with a method, a teacher, or both. Takes all arguments of the stock Trainer.

    Args:
        method: The method that decides what to remove, such as `AutoAttention()`, or its name. None: plain
            fine-tuning.
        distillation: What to learn from a teacher, such as `Distillation(logits=1.0)`; with any method, or with none.
        teacher: The dense model to distil from. Default: the model after the method's dense steps; without dense
            steps, if the method distils by default, the model at the start.

    During and after training, `trainer.model` has its full shape and gives the outputs of the trimmed model.
    `trainer.plan()` says what to remove, and `attentrim.trim(trainer.model, trainer.plan())` removes it.
    """

    model: Any
    train_dataset: Any
    eval_dataset: Any

    def __init__(
        self,
        *args: Any,
        method: Method | str | None = None,
        distillation: Distillation | None = None,
        teacher: Any = None,
        **kwargs: Any,
    ) -> None:
        self.method = METHODS[method]() if isinstance(method, str) else method
        if self.method is not None and not isinstance(self.method, Method):
            raise MethodError(f"method must be a method such as AutoAttention(), or its name. Got {method!r} instead.")
        if distillation is not None and not isinstance(distillation, Distillation):
            raise MethodError(f"distillation must be like Distillation(logits=1.0). Got {distillation!r} instead.")
        self.embeds = embeds(args[0] if args else kwargs.get("model"))
        """Whether the model embeds sentences: it needs no labels, and learns from a teacher's embeddings."""
        self.distillation = distillation_for(self.method, distillation, self.embeds)
        self.teacher: Any = None
        self.session: Session | None = None
        self._holdout: Any = None
        self.origin: dict[str, Any] = {}
        """What else two parts of one run must agree in, such as the weights that it starts from."""
        self._fingerprint: dict[str, Any] = {}
        self._checkpoint: str | None = None
        self._normalisation_checked = False
        self._last_step_end = -1
        check_launched(kwargs.get("args", args[1] if len(args) > 1 else None))
        if (model := kwargs.get("model", args[0] if args else None)) is not None:
            forget_gguf(unwrap(model))
        super().__init__(*args, **kwargs)
        self.engine = engine_of(self)
        """What spreads the weights over processes; None: each process has all of them."""
        if self.engine is not None:
            check_engine(self.engine, self, self.method)
        self._counters = Counters(self)
        self.add_callback(self._counters)
        if teacher is None and self.distillation is not None and self._starts_as_teacher:
            teacher = copy_as_teacher(self.model)
        self._check_teacher(teacher)
        if teacher is not None:
            self.teacher = frozen(whole(teacher), self.args.device)
        if self.method is not None:
            self._check_checkpointing()
            self._hold_out(self.method.data.holdout)
            self.session = self._attach(self.method)
            self._driver = _Driver(self, self.session, keeps_teacher=teacher is None)
            self.add_callback(self._driver)

    def create_accelerator_and_postprocess(self) -> None:
        with given_once(self.args):
            super().create_accelerator_and_postprocess()

    def plan(self) -> Plan:
        """What the method would remove in its current state. Empty without a method."""
        return Plan.of(self.model) if self.session is None else self.session.plan()

    @property
    def directory(self) -> str:
        return str(self.args.output_dir)

    @property
    def _starts_as_teacher(self) -> bool:
        """Whether it distils without being told from whom: from the model that it starts from."""
        if self.embeds:
            return True
        method = self.method
        own = method is not None and method.default_distillation is not None and not method.dense
        return own and not hasattr(self.model, "peft_config")

    # Training

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Like the stock Trainer's `train`. It resumes only from a complete checkpoint of the same run."""
        found = last_complete(self.directory) if resume_from_checkpoint is True else resume_from_checkpoint
        if resume_from_checkpoint is True and found is None:
            raise TrainingError(nothing_to_resume(self.directory))
        self._checkpoint = str(found) if found else None
        self.check_resume(self._checkpoint)
        self._last_step_end = -1
        self._fingerprint = fingerprint(self)  # now: training itself changes a model's config
        return super().train(self._checkpoint, *args, **kwargs)

    def check_resume(self, checkpoint: str | None) -> None:
        """Raise an error if training cannot resume from a checkpoint, before anything is changed."""
        if checkpoint is not None:
            check_whole(checkpoint)
            check_same_run(checkpoint, fingerprint(self))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step < self.state.max_steps:  # a checkpoint of the last step has none left to go
            super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _finalize_training(self, trial: Any, num_train_samples: Any, start_time: float) -> Any:
        start_time -= self._counters.seconds_before
        return super()._finalize_training(trial, num_train_samples, start_time)  # type: ignore[no-untyped-call]

    def _wrap_model(self, *args: Any, **kwargs: Any) -> nn.Module:
        """The last moment before an engine takes hold of the model."""
        if self.engine is not None:
            prepare_to_shard(self.model)
        if self.is_fsdp_enabled:
            shard_by_layer(self)
        return super()._wrap_model(*args, **kwargs)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        inputs = self._prepare_inputs(inputs)

        def run() -> Tensor:
            return self._forward_backward(model, dict(inputs), *args, **kwargs)

        return run() if self.session is None else self.session.run_batch(run, inputs)

    def _forward_backward(self, *args: Any, **kwargs: Any) -> Tensor:
        loss = super().training_step(*args, **kwargs)
        value = float(loss)
        if not math.isfinite(value):
            raise TrainingError(
                f"The loss is {value} at step {self.state.global_step + 1}: training stopped. "
                f"{self._last_checkpoint()} A lower learning_rate, or bf16 in place of fp16, usually helps."
            )
        return loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        self._check_normalisation(model, inputs, num_items_in_batch)
        if self.distillation is None or self.teacher is None or not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        wanted = {**inputs, **self.distillation.outputs_needed}
        label_loss: Tensor | None
        if self.embeds and "labels" not in inputs:
            label_loss, outputs = None, model(**wanted)
        else:
            label_loss, outputs = super().compute_loss(model, wanted, True, num_items_in_batch)
        # the Trainer divides a loss by the number of accumulated batches unless it is normalised already
        normalised = (self.model_accepts_loss_kwargs and num_items_in_batch is not None) or self.compute_loss_func
        loss = loss_with_teacher(
            self.distillation,
            label_loss,
            outputs,
            model=model,
            teacher=self.teacher,
            inputs=inputs,
            special_ids=special_ids(self),
            batches=self.current_gradient_accumulation_steps if normalised else 1,
            removed_layers=self.session.removed_layers if self.session is not None else (),
        )
        return (loss, outputs) if return_outputs else loss

    def _check_normalisation(self, model: nn.Module, inputs: dict[str, Any], items: Any) -> None:
        """Check once whether the model's loss uses the number of items, if a step has more than one batch.

        Many models take the number and ignore it; a Trainer that believed them would add up the means of accumulated
        batches, and of processes, rather than average them, and gates learn by the size of their gradients.
        """
        if self._normalisation_checked or items is None or not self.model_accepts_loss_kwargs or not model.training:
            return
        self._normalisation_checked = True
        batches = self.args.gradient_accumulation_steps * self.args.world_size * max(1, self.args.n_gpu)
        if batches == 1 or self.compute_loss_func or self.label_smoother:
            return
        with evaluating(model), torch.no_grad():
            outputs = [model(**inputs, num_items_in_batch=count) for count in (items, 2 * items)]
        losses = [output["loss"] if isinstance(output, dict) else output[0] for output in outputs]
        once, twice = (loss.detach().float().mean() for loss in losses)
        # a batch without labels shows no difference: what any process sees holds for all
        self.model_accepts_loss_kwargs = bool(average((once != twice).float()) > 0)

    def clip(self) -> None:
        """Clip the gradients as they are, as the training loop does before each step."""
        if self.args.max_grad_norm and self.args.max_grad_norm > 0:
            self.accelerator.clip_grad_norm_(self.model_wrapped.parameters(), self.args.max_grad_norm)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        restarts = self.method.restarts if self.method is not None else []
        starts = [start for share in restarts if (start := round(share * num_training_steps))]
        if starts and self._created_lr_scheduler:
            optimizer = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = scheduler = restarted(self.args, optimizer, starts, num_training_steps)
        return scheduler

    # Evaluating, logging, saving, choosing

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Like the stock Trainer's `evaluate`. Also evaluates and logs what the method asks for.

        These are networks that train beside the model, and the model on training data that was held out.
        """
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if self.session is not None and not isinstance(data, dict):
            for name, playing in self.session.companions().items():
                self._note(name, data, playing)
            if self.session.judges_holdout and self._holdout is not None:
                self._note("holdout", self._holdout, nullcontext())
        return super().evaluate(eval_dataset, *args, **kwargs)

    def _note(self, name: str, data: Any, playing: AbstractContextManager[None]) -> None:
        """Metrics for the log, under names that start with this one."""
        assert self.session is not None
        with playing, torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
            found = self.predict(data, metric_key_prefix=name).metrics or {}
        self.session.note({key: value for key, value in found.items() if not key.endswith(_SPEEDS)})

    @property
    def dense_model(self) -> Any:
        """The model after the method's dense steps, if the run then distils from it; otherwise None."""
        return self.teacher if self.session is not None and self._driver.keeps_teacher else None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        super().log({**logs, **(self.session.metrics() if self.session else {})}, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not is_finite(unwrap(self.model)):
            raise TrainingError(
                f"The weights are not finite at step {self.state.global_step} and were not saved. "
                f"{self._last_checkpoint()} A lower learning_rate usually helps."
            )
        if self.session is not None:
            self.session.check()
        super().save_model(output_dir, _internal_call)
        target = Path(output_dir or self.directory)
        if self.args.should_save:
            target.mkdir(parents=True, exist_ok=True)  # FSDP2 with sharded state dicts has saved nothing yet
        if self.args.should_save and _internal_call:
            write_fingerprint(target, self._fingerprint)
        if self.session is not None and self.args.should_save:
            self.session.save(target) if _internal_call else self.plan().save(target / "plan.json")

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Comes after each step, and once more after the last one of an epoch: that step is saved only then.

        A checkpoint that were older than the log and the evaluation that end an epoch would be resumed without them.
        """
        control, state = self.control, self.state
        ends_epoch = control.should_training_stop or control.should_epoch_stop or float(state.epoch or 0).is_integer()
        comes_again = ends_epoch and state.global_step != self._last_step_end
        self._last_step_end = state.global_step
        postponed = comes_again and control.should_save
        control.should_save = control.should_save and not postponed
        super()._maybe_log_save_evaluate(*args, **kwargs)
        self.control.should_save = self.control.should_save or postponed

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """The state is what tells that a checkpoint is whole: an older one goes first, the new one comes last."""
        place = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        self._counters.keep()
        try:
            if self.args.should_save:
                (place / STATE).unlink(missing_ok=True)
            super()._save_checkpoint(model, trial)
        except Exception as error:
            found = explained(error, place, place)
            if found is None:
                raise
            shutil.rmtree(place, ignore_errors=True)
            raise TrainingError(f"{found} {self._last_checkpoint()}") from error

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()  # every process has written its part before the state is

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """A model whose set of heads is not the final one cannot be the best."""
        if self.session is not None and not self.session.settled:
            return False
        return super()._determine_best_metric(metrics, trial)

    def _last_checkpoint(self) -> str:
        found = last_complete(self.directory)
        return f"The last good checkpoint is {found}." if found else "No checkpoint was saved yet."

    # What a method needs of its surroundings

    def _check_checkpointing(self) -> None:
        checkpointing: Any = self.args.gradient_checkpointing_kwargs or {}
        if self.args.gradient_checkpointing and checkpointing.get("use_reentrant"):
            raise MethodError("Gates cannot learn through reentrant checkpointing: leave use_reentrant at False.")

    def _check_teacher(self, teacher: Any) -> None:
        if teacher is None and self.distillation is None:
            return
        if self.distillation is None:
            raise MethodError("teacher is for distillation: also set Trainer(distillation=Distillation(logits=1.0)).")
        if teacher is not None:
            if unwrap(teacher) is unwrap(self.model):
                raise MethodError("The teacher must not be the model that is trained: give it a copy.")
            return
        if self.method is None:
            raise MethodError("Distillation without a method needs a dense model: give Trainer(teacher=...).")
        if not self.method.dense:
            raise MethodError(
                "Distillation needs a dense model: give a teacher, or have dense steps first "
                "(dense_share; for attendout, a tune_share below 1)."
            )
        if hasattr(self.model, "peft_config"):
            raise MethodError("A PEFT model cannot be its own teacher: give Trainer(teacher=...).")

    def _attach(self, method: Method) -> Session:
        needs = method.data
        wants_batches = needs.calibration and self.train_dataset is not None
        session = method.attach(
            self.model,
            calibration=Calibration(self, needs.calibration) if wants_batches else None,
            evaluate=self._holdout_metric if self._holdout is not None else None,
            held_out=self._held_out(needs),
            seed=self.args.seed,
        )
        session.shows_progress = not self.args.disable_tqdm
        return session

    def _held_out(self, needs: DataNeeds) -> HeldOut | None:
        """What a method draws rewards from."""
        sources = {"train_split": self._holdout, "dev": self.eval_dataset, "noisy_train": self.train_dataset}
        data = sources[needs.rewards] if needs.rewards else None
        if data is None or not hasattr(data, "__len__"):
            return None
        return HeldOut(self, data, needs.noise if needs.rewards == "noisy_train" else 0.0)

    def _hold_out(self, share: float) -> None:
        if share and self.train_dataset is not None:
            classes = getattr(self.model.config, "num_labels", 0)
            self.train_dataset, self._holdout = hold_out(self.train_dataset, share, self.args.seed, classes)
            if self.embeds and "labels" not in self._holdout[0]:
                self._holdout = self._answered(self._holdout)

    def _answered(self, data: Any) -> Answered:
        """With the teacher's embeddings as labels."""
        collate = self._get_collator_with_removed_columns(self.data_collator)
        shows = not self.args.disable_tqdm
        return Answered(data, embeddings_of(self.teacher, data, collate, self.args.eval_batch_size, progress=shows))

    def _holdout_metric(self) -> float:
        """The metric that chooses models, on the held-out part; higher is better."""
        name = (self.args.metric_for_best_model or "loss").removeprefix("eval_")
        with evaluating(self.model):
            metrics = self.predict(self._holdout, metric_key_prefix="holdout").metrics or {}
        if f"holdout_{name}" not in metrics:
            raise MethodError(f"metric_for_best_model is {name!r}, which compute_metrics does not give.")
        value = float(metrics[f"holdout_{name}"])
        return score(name, value) if self.args.greater_is_better or name in LOWER_IS_BETTER else -value


class _Driver(MethodCallback):
    """The method's callback with what only its own Trainer can do: start over, resume, keep a teacher.

    Args:
        keeps_teacher: Where the run distils: whether what the dense steps leave is the teacher.
    """

    def __init__(self, trainer: Trainer, session: Session, keeps_teacher: bool) -> None:
        super().__init__(session)
        self.trainer = trainer
        self.keeps_teacher = keeps_teacher and trainer.distillation is not None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        same_model = self.session.model is unwrap(trainer.model)
        if self.session.steps_done or not same_model or not self.session.control.attached:
            self.session.detach()
            self.session = trainer.session = trainer._attach(self.session.method)
        super().on_train_begin(args, state, control, **kwargs)
        if self.keeps_teacher:
            trainer.teacher = None
        if trainer._checkpoint is not None:
            self.session.load(trainer._checkpoint)
            if self.keeps_teacher and state.global_step >= self._dense_steps(state):
                folder = Path(trainer._checkpoint).parent / FOLDER
                trainer.teacher = load_as_teacher(folder, trainer.model, trainer.args.device)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.session.after_optimizer_step(self.trainer.optimizer, self.trainer.clip)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """When the dense steps are done, the model as it is becomes the teacher."""
        trainer = self.trainer
        if self.keeps_teacher and state.global_step == self._dense_steps(state):
            trainer.teacher = frozen(copy_as_teacher(trainer.model), args.device)
            if state.is_world_process_zero:
                with saving(Path(trainer.directory) / FOLDER) as stage:
                    trainer.teacher.save_pretrained(stage)
                    if trainer.processing_class is not None:
                        trainer.processing_class.save_pretrained(stage)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer itself saved the session, with the model."""

    def _dense_steps(self, state: Any) -> int:
        return round(self.session.method.dense * int(state.max_steps))
