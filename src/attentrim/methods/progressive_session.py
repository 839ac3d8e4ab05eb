"""Progressive uniform pruning at work on a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import MethodError, TrainingError, UnsupportedModelError
from ..plan import Plan
from .progressive import ProgressiveMethod
from .session import Session


class ProgressiveSession(Session):
    """A first phase in which no site is uniform; then the choice of sites, and a phase in which they turn uniform."""

    method: ProgressiveMethod

    def __init__(self, method: ProgressiveMethod, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.sites = {site.index: site for site in self.control.sites if site.heads}
        if not self.sites:
            self.detach()
            raise UnsupportedModelError(f"This {type(self.model).__name__} has no attention left to prune.")
        self.prune_from = 0
        """The step with which the pruning phase starts."""
        self.chosen: list[int] | None = None
        """The sites to make uniform, first to go first, once they are chosen."""
        self._finished = False
        self._tried: list[int] | None = None
        """The sites that are uniform while the metric is taken."""

    # The life of a session

    def begin(self, steps: int) -> None:
        super().begin(steps)
        self._finished = False
        self.prune_from = round(self.method.first_share * steps)
        if self._prunes_while_training and self.prune_from >= steps:
            raise MethodError(f"No step is left to make sites uniform in: all {steps} belong to the phase before.")
        self._check_metric()

    def start_step(self) -> None:
        super().start_step()
        self.require_steps()
        if self._choice_is_due:
            self.chosen = self.choose()

    def before_forward(self, training: bool) -> None:
        self.control.clear()
        for index in self.uniform:
            self.control.set("uniform", index)

    def before_optimizer_step(self, scale: float = 1.0) -> None:
        if self._choice_is_due:
            raise MethodError(
                "Sites are chosen when a step starts: use a Trainer, session.follow(optimizer), or call "
                "session.start_step() before each step."
            )
        super().before_optimizer_step(scale)

    def finish(self) -> None:
        """Training that ended early owes the rest: all chosen sites are uniform from here on."""
        if self.method.pruning is not None and self.chosen is None:
            self.chosen = self.choose()
        self._finished = True

    @property
    def _prunes_while_training(self) -> bool:
        return self.method.first_share < 1

    @property
    def _choice_is_due(self) -> bool:
        return self._prunes_while_training and self.chosen is None and self.steps_done >= self.prune_from

    # The sites

    @property
    def uniform(self) -> list[int]:
        """The sites that are uniform now."""
        if self._tried is not None:
            return self._tried
        if not self.chosen:
            return []
        if self._finished or self.steps is None or self.steps_done >= self.steps:
            return self.chosen
        assert self.method.pruning is not None
        progress = (self.steps_done - self.prune_from) / (self.steps - self.prune_from)
        return self.method.pruning.uniform_at(self.chosen, progress)

    @property
    def settled(self) -> bool:
        if not self._prunes_while_training:
            return True
        return self.chosen is not None and len(self.uniform) == len(self.chosen)

    def ranked(self) -> list[int]:
        """All sites, in the order in which they go: those nearest to the output first."""
        return sorted(self.sites, reverse=True)

    def choose(self) -> list[int]:
        """The sites to make uniform, first to go first."""
        pruning = self.method.pruning
        assert pruning is not None
        self._check_metric()
        return pruning.choose(self.ranked(), self.metric_with)

    def _check_metric(self) -> None:
        pruning = self.method.pruning
        if pruning is not None and pruning.judged_by_metric and self.evaluate is None:
            raise MethodError("max_drop and a greedy order are judged by a metric: attach(model, evaluate=...).")

    def metric_with(self, uniform: Sequence[int]) -> float:
        """The metric of the model as it is, with these sites uniform."""
        assert self.evaluate is not None
        with self._trying(uniform):
            value = float(self.evaluate())
        if math.isnan(value):
            raise TrainingError(f"The metric by which sites are chosen is NaN at step {self.steps_done}.")
        return value

    @contextmanager
    def _trying(self, uniform: Sequence[int]) -> Iterator[None]:
        self._tried = list(uniform)
        try:
            yield
        finally:
            self._tried = None

    # Results

    def plan(self) -> Plan:
        return self.planned(uniform=self.chosen or ())

    def metrics(self) -> dict[str, float]:
        return {"sites_uniform": len(self.uniform)}

    def record(self) -> dict[str, Any]:
        return {"uniform_sites": sorted(self.uniform)}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "chosen": self.chosen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.chosen = state["chosen"]
        self._finished = False
