"""What is asked of a model's speed, and whether it is reached: table, budget, and measurements of whole models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...cost import plan_cost
from ...duplicate import whole
from ...errors import MethodError
from ...plan import Plan
from ...speed.layers import layer_kind, unit_kind
from ...speed.measuring import flops_table
from ...speed.obtain import obtain_table, read_table
from ...speed.table import FLOPS, Table
from ...speed.target import Target, complete_target
from ...speed.timing import speedup_of
from ...surgery import trim
from ..processes import from_first
from .choosing import Choice

if TYPE_CHECKING:
    from . import Fisher

TRIES = 6
"""Measurements of whole models for one speed, at most."""
NEAR = 0.02
"""A measured speed this near to what was asked is it."""
WIDTH_STEPS = {"cpu": 32, "cuda": 64}


class Speeds:
    """Knows how fast a model would be with what a plan leaves of it."""

    def __init__(self, method: Fisher, model: Any) -> None:
        self.method, self.model = method, model
        self.factors: dict[float, float] = {}
        """The factor on the budget of the table, by requested speed."""
        self.measured: dict[float, float] = {}
        """The measured speed of the whole model, by requested speed."""
        self._table: Table | None = None

    # The table

    def obtain(self, progress: bool) -> Table:
        """From a file, or measured now, by the first of several processes."""
        if self._table is None:
            model = self._timed()
            self._table = from_first(lambda: self._make(model, progress))
        return self._table

    def _make(self, model: Any, progress: bool) -> Table:
        method = self.method
        if method.speed_table is not None:
            return read_table(method.speed_table, model, elsewhere=method.speed_elsewhere)
        target = self.target
        if method.cost == "flops":
            return flops_table(model, target)
        return obtain_table(model, target, progress=progress)

    def _timed(self) -> Any:
        """What the first process times: the model, with all of its weights where any are needed."""
        by_weights = self.method.cost == "time" and not self.method.speed_elsewhere
        return whole(self.model, everywhere=False) if by_weights else self.model

    @property
    def table(self) -> Table:
        return self.obtain(False)

    @property
    def target(self) -> Target:
        method = self.method
        if self._table is not None:
            return self._table.target
        return complete_target(
            self.model,
            method.speed_batch,
            method.speed_length,
            method.speed_dtype,
            method.speed_backend,
            # FLOPs need no device
            "cpu" if method.cost == "flops" and method.speed_device is None else method.speed_device,
        )

    @property
    def width_step(self) -> int:
        return WIDTH_STEPS[self.table.target.device]

    # Budgets

    def budget(self, asked: float) -> float:
        """What the model may cost by the table to be as fast as asked."""
        return self.table.dense / (self.table.corrected(asked) * self.factors.get(asked, 1.0))

    def reach(
        self, asked: float, choose: Callable[[float], Choice | None], plan_of: Callable[[Choice], Plan]
    ) -> Choice:
        """Choose, measure the whole model, correct the budget, and again, until it is as fast as asked.

        Of several tries, the nearest is taken.
        """
        best: tuple[float, float, Choice] | None = None
        for _ in range(TRIES):
            choice = choose(self.budget(asked))
            if choice is None:
                break
            speed = from_first(partial(self.speed, plan_of(choice), self._timed()))
            if speed is None:
                return choice
            apart = abs(speed / asked - 1)
            if best is None or apart < best[0]:
                best = apart, speed, choice
            if apart <= NEAR / 2:
                break
            self.factors[asked] = self.factors.get(asked, 1.0) * asked / speed
        if best is None:
            raise MethodError(f"No smaller version of this model is {asked:g} times as fast.")
        self.measured[asked] = best[1]
        return best[2]

    def speed(self, plan: Plan, model: Any) -> float | None:
        """How many times faster the model is without what a plan removes; None where it cannot be measured here."""
        if self.table.unit == FLOPS:
            before, after = plan_cost(model, plan, self.target.batch, self.target.length)
            return before.flops / after.flops
        if self.method.speed_elsewhere:
            return None
        return speedup_of(trim(model, plan), model, self.target)

    # What it knows

    def results(self, plan: Plan, asked: float) -> dict[str, Any]:
        """For the result of a run."""
        table = self.table
        gone = plan.removed_of(layer_kind().name)
        whole = Plan.of(self.model)
        rows = [
            {
                "layer": layer,
                "before": _named(table.layer_parts(whole, layer)),
                "after": None if layer in gone else _named(table.layer_parts(plan, layer)),
            }
            for layer in sorted(table.layers)
        ]
        times = {**table.target.as_dict(), "unit": table.unit, "rest": round(table.fixed, 4), "rows": rows}
        return {"speedup_asked": asked, "layer_times": times}

    def remarks(self) -> list[str]:
        found = []
        for asked, speed in self.measured.items():
            if abs(speed / asked - 1) > NEAR:
                found.append(f"Requested {asked:g} times as fast; the closest possible was {speed:.2f}.")
        if self.method.speed_elsewhere:
            found.append(
                "The speed is estimated from a latency table of another machine and was not measured: run attentrim "
                "bench there."
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"factors": self.factors, "measured": self.measured}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.factors, self.measured = dict(state["factors"]), dict(state["measured"])


def _named(parts: Mapping[str, float]) -> dict[str, float]:
    """By what is in a place: attention, feed-forward, rest."""
    return {unit_kind(name).block if name != "rest" else name: round(cost, 4) for name, cost in parts.items()}
