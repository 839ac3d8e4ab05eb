"""A thin callback: a method under any transformers Trainer. The logic is the session's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..checkpoint.saving import saving
from ..duplicate import whole
from ..surgery import trim
from .processes import loss_scale

if TYPE_CHECKING:
    from ..plan import Plan
    from .session import Session


class MethodCallback(TrainerCallback):
    """Drives a session from the events of a Trainer.

        session = attentrim.AutoAttention(target_sparsity=0.5).attach(model)
        trainer = transformers.Trainer(model=model, callbacks=[MethodCallback(session)], ...)

    Each checkpoint gets the session's state. To resume, call `session.load(checkpoint)` before `train`.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.session.on_milestone is None:
            tokenizer, main = kwargs.get("processing_class"), state.is_world_process_zero
            folder = Path(str(args.output_dir))

            def save(name: str, plan: Plan) -> None:
                model = whole(self.session.model, everywhere=False)
                if main:
                    self._save_trimmed(folder / name, model, plan, tokenizer)

            self.session.on_milestone = save
        self.session.begin(state.max_steps)

    def _save_trimmed(self, folder: Path, model: Any, plan: Plan, tokenizer: Any) -> None:
        """A model on the way, as it is now, without what its plan removes."""
        with saving(folder) as stage:
            trim(model, plan).save_pretrained(stage)
            plan.save(stage / "plan.json")
            if tokenizer is not None:
                tokenizer.save_pretrained(stage)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.session.start_step()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.session.before_optimizer_step(loss_scale(getattr(kwargs.get("optimizer"), "scaler", None)))

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.session.after_optimizer_step(kwargs.get("optimizer"))

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        checkpoint = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if state.is_world_process_zero and checkpoint.is_dir():
            self.session.save(checkpoint)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        best = state.best_model_checkpoint if args.load_best_model_at_end else None
        if best is not None and not self.session.keeps_best:
            self.session.load(best)
        self.session.finish()
