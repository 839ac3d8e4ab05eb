"""A method at work on one model. The Trainer, its callback and hand-written loops all drive this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from ..calibration import HeldOut
from ..control import Control
from ..errors import MethodError
from ..plan import Plan
from ..speed.target import Target
from .base import Method
from .processes import loss_scale

STATE_FILE = "attentrim_method.pt"


class Session:
    """The state of a method on one model, made by `method.attach(model)`.

    `follow(optimizer)` or a callback calls these in each step, in this order:

        start_step()              before the first forward: slow work, such as passes over data and choices
        before_forward(training)  before each forward: set gates and masks, nothing else
        run_batch(run, inputs)    forward and backward of one training batch
        before_optimizer_step()   after the last backward: the method takes its own step
        after_optimizer_step()    the weights are updated
    """

    def __init__(
        self,
        method: Method,
        model: Any,
        *,
        calibration: Iterable[Mapping[str, Any]] | None = None,
        evaluate: Callable[[], float] | None = None,
        held_out: HeldOut | None = None,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.calibration = calibration
        self.evaluate = evaluate
        self.held_out = held_out
        self.seed = seed
        self.control = Control(model)
        self.model = self.control.model
        self.steps_done = 0
        self.steps: int | None = None
        """The number of steps of the whole training, once it is known."""
        self.shows_progress = True
        self.on_milestone: Callable[[str, Plan], object] | None = None
        """Called with a name and a plan when a model to keep is trained and training continues. Under a Trainer, the
        model is trimmed by the plan and saved in a directory of that name."""
        self.control.before_forward(lambda training: self.before_forward(training))

    # The life of a session

    def begin(self, steps: int) -> None:
        """Set the number of optimiser steps. It must be cheap: a resumed run calls it before `load`."""
        if steps < 1:
            raise MethodError(f"The number of steps must be 1 or more. Got {steps} instead.")
        self.steps = steps

    def start_step(self) -> None:
        """Called before the first forward of an optimiser step.

        All slow work belongs here: passes over data, choices, evaluations. A second call must change nothing.
        """

    def before_forward(self, training: bool) -> None:
        """Called before every forward of the model, in training or not: set its gates and masks."""

    def run_batch(self, run: Callable[[], Any], inputs: Mapping[str, Any]) -> Any:
        """Call `run` for the forward and backward of a training batch. A method may call it again later."""
        return run()

    def before_optimizer_step(self, scale: float = 1.0) -> None:
        """Called after backward: the method's own update. `scale` is the factor of a loss scaler."""
        self.steps_done += 1

    def after_optimizer_step(self, optimizer: Any, clip: Callable[[], Any] | None = None) -> None:
        """Called after the optimiser's step. `clip` clips gradients as the training loop does."""

    def finish(self) -> None:
        """Called when training ends: make the choices that are still open."""

    def search(self) -> None:
        """Choose what to remove without training."""
        raise NotImplementedError

    def detach(self) -> None:
        """Detach from the model and leave it as it was before."""
        self.control.detach()

    # What it knows

    def batches(self) -> Iterator[dict[str, Any]]:
        """The calibration batches, on the model's device."""
        if self.calibration is None:
            raise MethodError(
                f"{type(self.method).__name__} looks at data: attach(model, calibration=...) takes an iterable of "
                "batches, such as a DataLoader."
            )
        for batch in self.calibration:
            yield {
                key: value.to(self.device) if isinstance(value, torch.Tensor) else value
                for key, value in batch.items()
            }

    @property
    def device(self) -> torch.device:
        parameter: torch.Tensor = next(self.model.parameters())
        return parameter.device

    def require_steps(self) -> int:
        """The number of steps, for methods with a schedule; raises an error if it is not known."""
        if self.steps is None:
            raise MethodError(
                f"{type(self.method).__name__} follows a schedule: pass the number of optimiser steps, attach(model, "
                "steps=...)."
            )
        return self.steps

    def check(self) -> None:
        """Raise an error if the run has gone wrong."""

    @property
    def settled(self) -> bool:
        """Whether the selection is final, so that the current model could be the final one."""
        return True

    @property
    def removed_layers(self) -> tuple[int, ...]:
        """The layers that the model skips now, numbered as in plans. Distillation takes them into account."""
        return ()

    @property
    def keeps_best(self) -> bool:
        """Whether the method itself restores the best state when training ends."""
        return False

    def plan(self) -> Plan:
        """What to remove according to the current state."""
        return self.planned()

    def planned(self, removed: Mapping[str, Any] | None = None, **more: Any) -> Plan:
        """A plan that removes these units, by kind of structure; `more` is added to `made_by`."""
        made_by = {
            "method": self.method.name,
            "settings": self.method.settings,
            "seed": self.seed,
            "step": self.steps_done,
            "reason": self.method.reason,
        }
        return Plan.of(self.model, made_by={**made_by, **more}, **(removed or {}))

    def metrics(self) -> dict[str, float]:
        """Numbers for the log."""
        return {}

    def record(self) -> dict[str, Any]:
        """What a line of the run's history contains besides the logged numbers."""
        return {}

    @property
    def speed_target(self) -> Target | None:
        """The setting in which the model should be fast, for methods that work towards a speed."""
        return None

    @property
    def timed_here(self) -> bool:
        """Whether the speed is measured on this machine."""
        return True

    @property
    def speeds_asked(self) -> list[float]:
        """The requested speed-ups, slowest first."""
        return []

    def results(self) -> dict[str, Any]:
        """What to add to the result of a run."""
        return {}

    def remarks(self) -> list[str]:
        """Sentences that a reader of the result should know."""
        return []

    def companions(self) -> dict[str, AbstractContextManager[None]]:
        """Networks that train beside the model, by name: contexts that put them into the model."""
        return {}

    @property
    def judges_holdout(self) -> bool:
        """Whether evaluations judge the held-out part of the training data too."""
        return False

    def note(self, numbers: Mapping[str, float]) -> None:
        """Add numbers to the log."""

    def alternatives(self) -> dict[str, AbstractContextManager[None]]:
        """Other ways to use the trained model, by name: contexts in which the model is evaluated."""
        return {}

    # Around an optimiser, under a Trainer, and on disk

    def follow(self, optimizer: Any, scaler: Any = None) -> None:
        """Take a step of the method with every step of `optimizer` (a torch optimiser, also from accelerate).

        The first step starts now, and each further one after the one before. If you scale the loss with a
        `GradScaler` of your own, pass it as `scaler`; accelerate's is found.
        """
        scaler = scaler or getattr(optimizer, "scaler", None)
        inner = getattr(optimizer, "optimizer", optimizer)
        inner.register_step_pre_hook(lambda *_: self.before_optimizer_step(loss_scale(scaler)))
        inner.register_step_post_hook(lambda *_: self._end_followed_step(optimizer))
        self.start_step()

    def _end_followed_step(self, optimizer: Any) -> None:
        self.after_optimizer_step(optimizer)
        if self.steps is None or self.steps_done < self.steps:
            self.start_step()

    def callback(self) -> Any:
        """For the `callbacks` of a transformers Trainer."""
        from .callback import MethodCallback

        return MethodCallback(self)

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.method.name, "steps_done": self.steps_done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["method"] != self.method.name:
            raise MethodError(f"This checkpoint was made by {state['method']!r}; the method is {self.method.name!r}.")
        # version 0.1 wrote "taken"
        self.steps_done = state["steps_done"] if "steps_done" in state else state["taken"]

    def save(self, directory: str | Path) -> None:
        """Write the state, for resuming, and the current plan into a checkpoint."""
        torch.save(self.state_dict(), Path(directory) / STATE_FILE)
        self.plan().save(Path(directory) / "plan.json")

    def load(self, directory: str | Path) -> None:
        path = Path(directory) / STATE_FILE
        if not path.is_file():
            raise MethodError(f"Cannot resume from {directory}: it holds no {STATE_FILE}.")
        self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
