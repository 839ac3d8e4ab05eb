"""AutoAttention at work. Equations are those of the paper."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..learned import LearnedGates
from .budget import Budget
from .starts import Overlap

if TYPE_CHECKING:
    from . import AutoAttention

MEAN, HIGHEST = 1.0, 2.0
NEXT_TO_CLOSE = 0.02
"""Where the lowest parameter is put while a target asks for no closed gate yet."""


def _sigmoid_slope(x: Tensor) -> Tensor:
    return x.sigmoid() * (1 - x.sigmoid())


COARSE: dict[str, Callable[[Tensor], Tensor]] = {
    "softplus": nn.functional.softplus,
    "sigmoid": _sigmoid_slope,
    "linear": torch.ones_like,
    "relu": lambda x: (x > 0).to(x),
    "clipped_relu": lambda x: ((x > 0) & (x < 1)).to(x),
}
"""The coarse gradient of the step function, by name (eq. 10 prints softplus)."""


class AutoAttentionSession(LearnedGates):
    """A gate is a step function of its parameter (eq. 8), with a coarse gradient in place of its own.

    The gates of a step are one tensor, which collects dF/dG over the step's batches; the coarse gradient, the penalty
    and the learning rate come in once, when the step is taken. On a GPU each small operation is a kernel launch.
    """

    method: AutoAttention

    def __init__(self, method: AutoAttention, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.start = self.parameters.detach().cpu().clone()
        self.gate_lr = method.gate_lr
        """The learning rate of the moment: a budget changes it."""
        self.budget = Budget(self) if method.max_drop is not None else None
        self._collecting: Tensor | None = None
        self._collects_for: Tensor | None = None

    def initial(self) -> Tensor:
        start = torch.full([self.count], MEAN)
        if not self.method.start_spread:
            return start
        tiny = torch.finfo(start.dtype).tiny
        return nn.init.trunc_normal_(start, MEAN, self.method.start_spread, tiny, HIGHEST, generator=self.generator)

    def hard(self) -> Tensor:
        """1 where the parameter is above 0, else 0 (eq. 8)."""
        return torch.gt(self.parameters, 0, out=torch.empty_like(self.parameters))

    def training_gates(self) -> Tensor:
        if self.is_fixed:
            return self.open
        if self._collecting is None or self._collects_for is not self.open:
            self._collecting, self._collects_for = self.open.detach().requires_grad_(), self.open
        return self._collecting

    # The life of a step

    def start_step(self) -> None:
        super().start_step()
        if self.budget is not None:
            self.budget.check()

    def take_gradient(self) -> Tensor | None:
        """dF/dG"""
        gates, self._collecting = self._collecting, None
        return None if gates is None else gates.grad

    def learn(self, gradient: Tensor) -> None:
        """W - lr * (dF/dG + mu) * coarse(W): eq. 10, with the penalty mu * sum(G) of eq. 9."""
        rests = self.budget is not None and self.budget.rests
        gradient += 0.0 if rests else self.method.pressure
        self.parameters.addcmul_(gradient, COARSE[self.method.backward](self.parameters), value=-self.gate_lr)

    def project(self, amount: float) -> Tensor:
        """The smallest common shift that leaves just gates of this weight with parameters at or below 0."""
        ordered, order = self.parameters.sort(stable=True)
        chosen = self.first(order, amount)
        closed = len(chosen)
        first_open = ordered[closed]
        last_closed = ordered[closed - 1] if closed else first_open - NEXT_TO_CLOSE
        halfway = torch.lerp(first_open, last_closed, 0.5)
        self.parameters -= torch.where(first_open <= 0, halfway, last_closed.clamp_min(0.0))
        return chosen

    def fix(self) -> None:
        super().fix()
        self._warn_of_start()

    def finish(self) -> None:
        if self.budget is not None:
            self.budget.settle()
        super().finish()
        if self.fixed_from is None:
            self._warn_of_start()

    # What it knows

    @property
    def overlap(self) -> Overlap | None:
        """The closed gates against those that started lowest; None where all started alike, or none is closed."""
        closed = (self.open == 0).cpu()
        alike = bool((self.start == self.start[0]).all())
        return None if alike or not closed.any() else Overlap.of(self.start, closed)

    def _warn_of_start(self) -> None:
        for sentence in self._about_start():
            warnings.warn(sentence, stacklevel=2)

    def _about_start(self) -> list[str]:
        overlap = self.overlap
        if overlap is None or not overlap.follows_start:
            return []
        return [
            f"{overlap.started_lowest} of the {overlap.closed} gates that closed are among the {overlap.closed} that "
            f"happened to start lowest ({overlap.by_chance:.0f} would be by chance): their random start chose them "
            f"more than training did. Train for more steps, raise gate_lr (now {self.method.gate_lr:g}), or let all "
            "gates start alike with start_spread=0."
        ]

    def remarks(self) -> list[str]:
        return [*super().remarks(), *self._about_start()]

    def results(self) -> dict[str, Any]:
        overlap = self.overlap
        found = {} if overlap is None else {"start_overlap": {**asdict(overlap), "by_chance": overlap.by_chance}}
        return {**super().results(), **found}

    @property
    def settled(self) -> bool:
        return super().settled and not self.keeps_best

    @property
    def keeps_best(self) -> bool:
        return self.budget is not None

    @property
    def may_close_all(self) -> bool:
        """Within a budget, a step too far is taken back at the next check."""
        return self.budget is not None

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), **(self.budget.metrics() if self.budget else {})}

    def state_dict(self) -> dict[str, Any]:
        budget = self.budget and self.budget.state_dict()
        return {**super().state_dict(), "gate_lr": self.gate_lr, "budget": budget, "start": self.start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        # version 0.1 had a torch optimiser for the gates
        self.gate_lr = state["gate_lr"] if "gate_lr" in state else state["optimizer"]["param_groups"][0]["lr"]
        self.start = state.get("start", self.start)  # version 0.1 did not keep it; the same seed starts alike
        if self.budget is not None:
            self.budget.load_state_dict(state["budget"])
