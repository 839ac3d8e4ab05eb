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
    """Holds what a method learns and knows how far training has come. Made by `method.attach(model)`.

    The life of a step has named moments. `follow(optimizer)` or a callback calls them, in this order:

        start_step()              the weights of the last step are in: look at data, choose, decide
        before_forward(training)  before each forward: set gates and masks, nothing else
        run_batch(run, inputs)    forward and backward of one training batch
        before_optimizer_step()   gradients are there: the method takes its own step
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
        """Of the whole training, once it is known."""
        self.shows_progress = True
        self.on_milestone: Callable[[str, Plan], object] | None = None
        """Called with a name and a plan when a model that is worth keeping is trained, before training goes on. Under
        a Trainer, the model trimmed by the plan is saved in a directory of that name."""
        self.control.before_forward(lambda training: self.before_forward(training))

    # The life of a session

    def begin(self, steps: int) -> None:
        """Training will take this many optimiser steps. Light: a resumed run calls it, and then `load`."""
        if steps < 1:
            raise MethodError(f"The number of steps must be 1 or more. Got {steps} instead.")
        self.steps = steps

    def start_step(self) -> None:
        """Before the first forward of an optimiser step, the weights of the last step being in.

        The moment for all heavy work: passes over data, choices, evaluations. A second call changes nothing.
        """

    def before_forward(self, training: bool) -> None:
        """Before every forward of the model, in training or not: set the gates and masks that it is to use."""

    def run_batch(self, run: Callable[[], Any], inputs: Mapping[str, Any]) -> Any:
        """Have `run` do the forward and backward of a training batch. A method may have it done again, later."""
        return run()

    def before_optimizer_step(self, scale: float = 1.0) -> None:
        """After backward: a step of the method's own. `scale` is what a loss scaler multiplied the loss by."""
        self.steps_done += 1

    def after_optimizer_step(self, optimizer: Any, clip: Callable[[], Any] | None = None) -> None:
        """The optimiser has taken its step. `clip` clips the gradients as the training loop does."""

    def finish(self) -> None:
        """Training is over: settle what is still open."""

    def search(self) -> None:
        """Choose what to remove without training."""
        raise NotImplementedError

    def detach(self) -> None:
        """Leave the model as it was found."""
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
        """The number of steps, for what works to a schedule; raises while it is not known."""
        if self.steps is None:
            raise MethodError(
                f"{type(self.method).__name__} works to a schedule: say how many optimiser steps there will be, "
                "attach(model, steps=...)."
            )
        return self.steps

    def check(self) -> None:
        """Raise if the run has gone wrong."""

    @property
    def settled(self) -> bool:
        """Whether the model as it is now could be the final one."""
        return True

    @property
    def removed_layers(self) -> tuple[int, ...]:
        """The layers that the model skips now, numbered as in plans: distillation heeds them."""
        return ()

    @property
    def keeps_best(self) -> bool:
        """Whether it goes back to the best state by itself when training ends."""
        return False

    def plan(self) -> Plan:
        """What to remove, as things stand."""
        return self.planned()

    def planned(self, removed: Mapping[str, Any] | None = None, **more: Any) -> Plan:
        """A plan that removes this, by kind of structure; `more` is said of how it was made."""
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
        """What one line of the run's history has beyond the numbers of the log."""
        return {}

    @property
    def speed_target(self) -> Target | None:
        """Where the model is to be fast, for methods that work to a speed."""
        return None

    @property
    def timed_here(self) -> bool:
        """Whether its speed is to be measured on this machine."""
        return True

    @property
    def speeds_asked(self) -> list[float]:
        """The speed-ups that it works to, slowest first."""
        return []

    def results(self) -> dict[str, Any]:
        """What goes into the result of a run beside its metrics."""
        return {}

    def remarks(self) -> list[str]:
        """What a reader of the result must know, in sentences."""
        return []

    def companions(self) -> dict[str, AbstractContextManager[None]]:
        """Networks that train beside the model, by name: each is in the model while its context holds."""
        return {}

    @property
    def judges_holdout(self) -> bool:
        """Whether evaluations judge the held-out part of the training data too."""
        return False

    def note(self, numbers: Mapping[str, float]) -> None:
        """Take up numbers from outside, for the log."""

    def alternatives(self) -> dict[str, AbstractContextManager[None]]:
        """Other ways to use the trained model, by name: each holds while the model is evaluated."""
        return {}

    # Around an optimiser, under a Trainer, and on disk

    def follow(self, optimizer: Any, scaler: Any = None) -> None:
        """Take a step of the method with every step of `optimizer` (a torch optimiser, bare or from accelerate).

        Starts the first step at once, and each further one when the step before it is done. A loss that is scaled by
        a `GradScaler` of your own needs that scaler here; accelerate's is found.
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
        """Write the state to go on from, and the plan as things stand, into a checkpoint."""
        torch.save(self.state_dict(), Path(directory) / STATE_FILE)
        self.plan().save(Path(directory) / "plan.json")

    def load(self, directory: str | Path) -> None:
        path = Path(directory) / STATE_FILE
        if not path.is_file():
            raise MethodError(f"Cannot go on from {directory}: it holds no {STATE_FILE}.")
        self.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
