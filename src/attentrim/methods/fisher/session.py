"""Fisher at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import MethodError, unknown_name
from ...plan import Plan
from ...speed.layers import layer_kind
from ...speed.target import Target
from ...structures import STRUCTURES
from ..gates import GateSession
from ..processes import average
from .calibrating import gradients_on, rearranged
from .choosing import Choice, Chooser, Scores
from .keeping import Kept
from .speeds import Speeds
from .stages import Stage, stages_of

if TYPE_CHECKING:
    from . import Fisher

LEAST_EVERY, CHOICES = 20, 40
"""Steps between two choices at least, and about how many choices lead to one speed."""
FINE = 8000
"""Steps of the budget in the last choice for a speed."""


Learning = tuple[Tensor | None, Tensor | None]
NOTHING: Learning = (None, None)


class FisherSession(GateSession):
    """Gates on units, and switches on whole layers (and sites), with scores of their importance to the loss.

    A score is a moving average of the squared gradient of the loss in a gate. The budget falls from one speed to the
    next. Each choice closes what matters least for its cost, and what is closed stays closed. The model of the last
    choice for a speed is timed, and the choice repeated until it is as fast as requested. Then only the weights train.
    """

    method: Fisher

    def __init__(self, method: Fisher, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.switches = [
            (kind.name, place.index)
            for kind in (STRUCTURES[name] for name in method.kinds)
            if not kind.within
            for place in self.control.places[kind.places]
            if kind.gates(place.shape)
        ]
        """What is removed as a whole: (kind, place)."""
        self.off = torch.zeros(len(self.switches))
        """1 where it is removed. Replaced, never changed in place."""
        self.scores = torch.zeros(self.count)
        self.switch_scores = torch.zeros(len(self.switches))
        self.stages: list[Stage] = []
        self.speeds = Speeds(method, self.model)
        self.kept = Kept(self)
        self.settled_stage = -1
        """The last stage whose set is fixed."""
        self.left_stage = -1
        """The last stage that has ended."""
        self.cost = 0.0
        """What the model costs now, by the table; 0 before the first choice."""
        self._from_cost = 0.0
        """The same when the budget began to fall to the speed of this stage."""
        self._collecting: Learning = NOTHING
        self._calibrating: Learning = NOTHING
        """Gates and switches that collect gradients: in training, and in passes over calibration data."""
        self._stage_open: Tensor = self.open
        self._gradients: Tensor | None = None
        """Without training: [samples, gates]."""
        self._chooser: Chooser | None = None

    @property
    def gated_kinds(self) -> tuple[str, ...]:
        for name in self.method.kinds:
            if name not in STRUCTURES:
                raise MethodError(unknown_name("kind of structure to prune", name, STRUCTURES))
        found = tuple(name for name in self.method.kinds if STRUCTURES[name].within)
        if not found:
            able = [name for name in STRUCTURES if STRUCTURES[name].within]
            raise MethodError(f"prune is {self.method.prune}: name one of {', '.join(able)} too.")
        return found

    # The schedule

    def begin(self, steps: int) -> None:
        super().begin(steps)
        count = len(self.method.speedups)
        if steps - self.dense_until < 3 * count:
            raise MethodError(
                f"{steps} steps are too few: {self.dense_until} are plain fine-tuning (dense_share), and each of "
                f"{count} speeds needs at least 3."
            )
        self.stages = stages_of(self.method.speedups, self.dense_until, steps, self.method.ramp_share)

    @property
    def stage(self) -> int:
        """The number of the stage that the next step belongs to."""
        return next(
            (number for number, stage in enumerate(self.stages) if self.steps_done < stage.end), len(self.stages) - 1
        )

    def start_step(self) -> None:
        super().start_step()
        self.require_steps()
        if self._chooser is None:
            self.check_reach()
        if self.is_dense:
            return
        self.kept.mark_dense()
        stage = self.stage
        while self.left_stage < stage - 1:
            self.leave(self.left_stage + 1)
        now = self.stages[stage]
        if self.steps_done == now.start:
            self._stage_open = self.open
        if self.settled_stage < stage:
            if self.steps_done >= now.ramp_end:
                self.settle(stage)
            elif self.steps_done > now.ramp_start and (self.steps_done - now.ramp_start) % self._every(now) == 0:
                self.close_some(now)

    @staticmethod
    def _every(stage: Stage) -> int:
        return max(LEAST_EVERY, (stage.ramp_end - stage.ramp_start) // CHOICES)

    @property
    def is_scoring(self) -> bool:
        return not self.is_dense and bool(self.stages) and self.settled_stage < len(self.stages) - 1

    # Gates and switches on the model

    def training_gates(self) -> Tensor:
        if not self.is_scoring:
            return self.open
        gates, _ = self._collecting
        if gates is None:
            gates = self.open.detach().clone().requires_grad_()
            self._collecting = gates, self.off.to(self.device).clone().requires_grad_()
        return gates

    def apply_gates(self, gates: Tensor | None) -> None:
        super().apply_gates(gates)
        if gates is None:
            return
        for collecting, switches in [self._collecting, self._calibrating]:
            if gates is collecting and switches is not None:
                for number, (kind, place) in enumerate(self.switches):
                    self.control.set(kind, place, switches[..., number])
                return
        for (kind, place), off in zip(self.switches, self.off.tolist(), strict=True):
            self.control.set(kind, place) if off else self.control.unset(kind, place)

    @property
    def removed_layers(self) -> tuple[int, ...]:
        """The layers that the hidden states pass by now."""
        switched = [] if self.is_dense else zip(self.switches, self.off.tolist(), strict=True)
        return tuple(place for (kind, place), off in switched if off and kind == layer_kind().name)

    def move(self, device: torch.device) -> None:
        super().move(device)
        self.scores, self.switch_scores = self.scores.to(device), self.switch_scores.to(device)

    @torch.no_grad()
    def before_optimizer_step(self, scale: float = 1.0) -> None:
        self.require_steps()
        (gates, switches), self._collecting = self._collecting, NOTHING
        if gates is not None and switches is not None and gates.grad is not None:
            self._take(gates, switches, scale)
        super().before_optimizer_step(scale)

    def _take(self, gates: Tensor, switches: Tensor, scale: float) -> None:
        """The squared gradients of a step; closed gates keep the score that they closed with."""
        parts = [part.grad if part.grad is not None else torch.zeros_like(part) for part in (gates, switches)]
        both = average(torch.cat([part.float() for part in parts])) / scale
        if scale != 1.0 and not both.isfinite().all():
            return  # float16: a step whose gradients overflowed
        squares = both.square().split([self.count, len(self.switches)])
        decay = self.method.decay
        self.scores, self.switch_scores = self.scores.to(both.device), self.switch_scores.to(both.device)
        self.scores = torch.where(self.open > 0, self.scores.lerp(squares[0], 1 - decay), self.scores)
        self.switch_scores = self.switch_scores.lerp(squares[1], 1 - decay)

    # Choices

    @property
    def chooser(self) -> Chooser:
        if self._chooser is None:
            table = self.speeds.obtain(self.shows_progress)
            step = self.method.width_step or self.speeds.width_step
            self._chooser = Chooser(self.model, self.units, table, self.method.kinds, step)
        return self._chooser

    def check_reach(self) -> None:
        self.chooser.check_reach(self.method.speedups[-1])

    def current_scores(self) -> Scores:
        values = self.switch_scores.tolist()
        return Scores(self.scores, dict(zip(self.switches, values, strict=True)))

    @property
    def gone(self) -> frozenset[int]:
        return frozenset(self.removed_layers)

    def close_some(self, stage: Stage) -> None:
        """A choice on the way to a speed."""
        if self.steps_done <= stage.ramp_start + self._every(stage):
            self._from_cost = self.cost or self.chooser.table.dense
        goal = self.speeds.budget(stage.speedup)
        budget = self._from_cost + (goal - self._from_cost) * stage.progress(self.steps_done)
        choice = self.chooser.choose(self.current_scores(), self.open, self.gone, budget)
        if choice is not None:
            self.take(choice)

    def settle(self, number: int) -> None:
        """The last choice for a speed, made again until the whole model is as fast as asked."""
        stage, gone_before = self.stages[number], self.gone
        candidates = torch.where(self._stage_open > 0, 1.0, 0.0)
        scores = self.current_scores()

        def choose(budget: float) -> Choice | None:
            return self.chooser.choose(scores, candidates, gone_before, budget, FINE)

        self.take(self.speeds.reach(stage.speedup, choose, self._plan_of))
        self.settled_stage = number

    def take(self, choice: Choice) -> None:
        self.open = choice.open.to(self.device)
        on = {(layer_kind().name, layer) for layer in choice.layers}
        on |= {(kind, place) for kind, places in choice.whole.items() for place in places}
        self.off = torch.tensor([float(switch in on) for switch in self.switches])
        self.cost = choice.cost
        self._collecting = NOTHING
        self.history.note(self.steps_done, self.open)
        self.before_forward(training=False)

    def leave(self, number: int) -> None:
        """The weights for a speed are trained."""
        if self.settled_stage < number:
            self.settle(number)
        self.left_stage = number
        speedup = self.stages[number].speedup
        self.kept.judge(speedup)
        if self.on_milestone is not None and number < len(self.stages) - 1:
            self.on_milestone(f"speedup-{speedup:g}", self.plan())

    def finish(self) -> None:
        """Training that ended early owes the rest."""
        if not self.stages:
            self.stages = stages_of(self.method.speedups, self.steps_done, self.steps_done + 1, 1.0)
        self.dense_until = min(self.dense_until, self.steps_done)
        self.kept.mark_dense()
        if self.left_stage < len(self.stages) - 1 and not self.scores.any() and self.calibration is not None:
            self.calibrate()  # it ended before the first score
        while self.left_stage < len(self.stages) - 1:
            self.leave(self.left_stage + 1)
        self.kept.restore_best()
        super().finish()

    def search(self) -> None:
        """Without training: scores from a few examples, one choice, and a rearrangement of what it removes."""
        if len(self.method.speedups) > 1:
            raise MethodError("Without training, one speed at a time: give one speedup.")
        self.search_speed(self.method.speedups[0])

    def search_speed(self, speedup: float) -> None:
        """The same for one of several speeds; the data is looked at once."""
        if self._gradients is None:
            self.chooser.check_reach(speedup)
            self._gradients = self.calibrate()
        scores, chooser = self.current_scores(), self.chooser

        def choose(budget: float) -> Choice | None:
            return chooser.choose(scores, torch.ones(self.count), frozenset(), budget, FINE)

        self.take(self.speeds.reach(speedup, choose, self._plan_of))
        if self.method.rearrange:
            self.open = rearranged(self.open.cpu(), self._gradients, chooser).to(self.device)
            self.history.note(self.steps_done, self.open)
        self.before_forward(training=False)

    @contextmanager
    def nothing_removed(self) -> Iterator[None]:
        """The model as if nothing were chosen, for a while."""
        with self.gates_set(None):
            yield

    def calibrate(self) -> Tensor:
        """Take scores from the calibration data; the gradients in the gates by sample."""

        def apply(gates: Tensor, switches: Tensor) -> None:
            self._overrides[:] = [gates]
            self._calibrating = gates, switches

        random = torch.Generator().manual_seed(self.seed)
        try:
            units, places = gradients_on(
                self.model,
                self.batches(),
                apply,
                self.count,
                len(self.switches),
                self.method.use_labels,
                random,
                self.shows_progress,
            )
        finally:
            self._overrides.clear()
            self._calibrating = NOTHING
        self.scores = units.double().square().mean(0).float()
        self.switch_scores = places.double().square().mean(0).float()
        return units

    # What it knows

    @property
    def settled(self) -> bool:
        return bool(self.stages) and self.settled_stage == len(self.stages) - 1 and not self.keeps_best

    @property
    def keeps_best(self) -> bool:
        return self.method.max_drop is not None

    @property
    def may_close_all(self) -> bool:
        return True

    def _choice_now(self) -> Choice:
        names = [switch for switch, off in zip(self.switches, self.off.tolist(), strict=True) if off]
        whole: dict[str, frozenset[int]] = {}
        for kind, place in names:
            if kind != layer_kind().name:
                whole[kind] = whole.get(kind, frozenset()) | {place}
        layers = frozenset(place for kind, place in names if kind == layer_kind().name)
        return Choice(self.open.cpu(), layers, whole, self.cost, 0.0)

    def _plan_of(self, choice: Choice) -> Plan:
        return self.planned(self.chooser.removed(choice))

    def plan(self) -> Plan:
        if not self.cost:
            return self.planned()
        return self._plan_of(self._choice_now())

    @property
    def speed_target(self) -> Target | None:
        return self.speeds.target if self.method.cost == "time" and self.timed_here else None

    @property
    def timed_here(self) -> bool:
        return not self.method.speed_elsewhere

    @property
    def speeds_asked(self) -> list[float]:
        return [] if self.method.max_drop is not None else self.method.speedups

    def results(self) -> dict[str, Any]:
        return self.speeds.results(self.plan(), self.kept.chosen or self.method.speedups[-1])

    def remarks(self) -> list[str]:
        return [*self.speeds.remarks(), *self.kept.remarks()]

    def metrics(self) -> dict[str, float]:
        found = super().metrics()
        if self.cost:
            found["speedup_by_table"] = round(self.chooser.table.dense / self.cost, 4)
        return {**found, "layers_removed": len(self.removed_layers)}

    def record(self) -> dict[str, Any]:
        return {**super().record(), "removed_layers": list(self.removed_layers)}

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "off": self.off,
            "scores": self.scores.cpu(),
            "switch_scores": self.switch_scores.cpu(),
            "stage_open": self._stage_open.cpu(),
            "cost": self.cost,
            "from_cost": self._from_cost,
            "settled_stage": self.settled_stage,
            "left_stage": self.left_stage,
            "speeds": self.speeds.state_dict(),
            "kept": self.kept.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.off, self._stage_open = state["off"], state["stage_open"].to(self.device)
        self.scores, self.switch_scores = (state[name].to(self.device) for name in ("scores", "switch_scores"))
        self.cost, self._from_cost = state["cost"], state["from_cost"]
        self.settled_stage, self.left_stage = state["settled_stage"], state["left_stage"]
        self.speeds.load_state_dict(state["speeds"])
        self.kept.load_state_dict(state["kept"])
        self._collecting = NOTHING
        super().load_state_dict(state)
