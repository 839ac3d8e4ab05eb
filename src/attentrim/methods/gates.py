"""Sessions that open and close head gates: all gates of a model in one vector, with their history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..errors import MethodError, TrainingError, UnsupportedModelError
from ..modes import evaluating
from ..plan import Plan
from .base import HeadMethod
from .session import Session

LOOK_EVERY = 25
"""Steps between two looks at the gates: each look waits for the device."""


class GateSession(Session):
    """One gate a head (a key/value group where keys are shared), over all sites."""

    method: HeadMethod
    dense_until = 0
    """The first so many steps are plain fine-tuning."""

    def __init__(self, method: HeadMethod, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self.sites = [site for site in self.control.sites if site.heads]
        if not self.sites:
            self.detach()
            raise UnsupportedModelError(
                f"This {type(self.model).__name__} has no attention heads left to choose from."
            )
        self.sizes = [site.groups for site in self.sites]
        self.count = sum(self.sizes)
        self.open = torch.ones(self.count, device=self.device)
        """The hard gates of the moment, 1 or 0: what evaluation uses."""
        self.history = GateHistory(self)

    @property
    def is_dense(self) -> bool:
        """Whether training is still plain fine-tuning."""
        return self.taken < self.dense_until

    def begin(self, steps: int) -> None:
        super().begin(steps)
        self.dense_until = round(self.method.dense * steps)

    def arm(self, training: bool) -> None:
        if self.open.device != self.device:
            self.open = self.open.to(self.device)
        if self.is_dense:
            self.control.clear()
        else:
            self.set(self.training_gates() if training and torch.is_grad_enabled() else self.open)

    def training_gates(self) -> Tensor:
        """The gates that training uses, with their graph where they learn."""
        return self.open

    def set(self, gates: Tensor) -> None:
        """Put a vector [gates] or [batch, gates] onto the sites."""
        for site, part in zip(self.sites, gates.split(self.sizes, -1), strict=True):
            self.control.set("heads", site.index, part)

    def step(self, scale: float = 1.0) -> None:
        super().step(scale)
        self.history.note(self.taken, self.open)
        if self.taken % LOOK_EVERY == 0:
            self.history.look()

    def finish(self) -> None:
        self.history.look()
        if self.control.attached:
            self.arm(training=False)

    def check(self) -> None:
        self.history.look()

    # How many, and which

    def removals(self, sparsity: float) -> int:
        """The number of gates to close for a share of all heads; one always stays open."""
        return min(round(sparsity * self.count), self.count - 1)

    def close(self, closed: Tensor) -> None:
        """Close these gates (bool or indices) and open all others."""
        self.open = torch.ones(self.count, device=self.device)
        self.open[closed] = 0.0

    def plan(self) -> Plan:
        closed = (self.open == 0).cpu().split(self.sizes)
        heads = {
            site.index: [head for group in part.nonzero().flatten().tolist() for head in site.group(group)]
            for site, part in zip(self.sites, closed, strict=True)
        }
        return self.planned(heads)

    def metrics(self) -> dict[str, float]:
        self.history.look()
        closed = int((self.open == 0).sum())
        return {
            "gates_open": self.count - closed,
            "sparsity": closed / self.count,
            "gates_closed_so_far": self.history.closings,
            "gates_reopened_so_far": self.history.reopenings,
        }

    def record(self) -> dict[str, Any]:
        return {"gates": [part.int().tolist() for part in self.open.split(self.sizes)], **self.history.take_events()}

    def by_site(self, values: Tensor) -> list[list[float]]:
        """One number a gate, for the history."""
        return [[round(value, 4) for value in part.tolist()] for part in values.split(self.sizes)]

    @property
    def may_close_all(self) -> bool:
        return False

    def explain_all_closed(self, step: int) -> str:
        return f"Every gate of the model was closed at step {step}: there is no attention left to train."

    def locate(self, gate: int) -> tuple[int, int]:
        """(site, gate within the site)"""
        for site, size in zip(self.sites, self.sizes, strict=True):
            if gate < size:
                return site.index, gate
            gate -= size
        raise IndexError(gate)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "open": self.open.cpu(), "history": self.history.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if len(state["open"]) != self.count:
            raise MethodError(
                f"This checkpoint is of a model with {len(state['open'])} gates; the model has {self.count}."
            )
        self.open = state["open"].to(self.device)
        self.history.load_state_dict(state["history"], self.open)
        self.arm(training=False)

    # Looking at data

    @contextmanager
    def looking(self) -> Iterator[None]:
        """The model in eval mode, with gates set by hand, for passes over data within a step."""
        before, self._busy = self._busy, True
        try:
            with evaluating(self.model), torch.enable_grad():
                yield
        finally:
            self._busy = before

    def batches(self) -> Iterator[dict[str, Any]]:
        """The calibration batches, on the model's device."""
        if self.calibration is None:
            raise MethodError(
                f"{type(self.method).__name__} looks at data: attach(model, calibration=...) takes an iterable of "
                "batches, such as a DataLoader."
            )
        for batch in self.calibration:
            yield {key: value.to(self.device) if isinstance(value, Tensor) else value for key, value in batch.items()}


class GateHistory:
    """Which gate closed or opened again at which step. Keeps the gates on the device until someone looks."""

    def __init__(self, session: GateSession) -> None:
        self.session = session
        self.events: list[tuple[int, int, bool]] = []
        """(step, gate, whether it opened)"""
        self._before = session.open.bool().cpu()
        self._unseen: list[tuple[int, Tensor]] = []
        self._taken = 0

    def note(self, step: int, gates: Tensor) -> None:
        """`gates` are never changed in place, so keeping them is enough."""
        if not self._unseen or self._unseen[-1][1] is not gates:
            self._unseen.append((step, gates))

    def look(self) -> None:
        """Work out what happened since the last look; raise where nothing is left to train."""
        if not self._unseen:
            return
        steps = [step for step, _ in self._unseen]
        seen = torch.stack([gates for _, gates in self._unseen]).cpu()
        self._unseen.clear()
        for step, gates in zip(steps, seen, strict=True):
            if not gates.any() and not self.session.may_close_all:
                raise TrainingError(self.session.explain_all_closed(step))
            now = gates.bool()
            for gate in (now != self._before).nonzero().flatten().tolist():
                self.events.append((step, gate, bool(now[gate])))
            self._before = now

    @property
    def closings(self) -> int:
        return sum(not opened for _, _, opened in self.events)

    @property
    def reopenings(self) -> int:
        return sum(opened for _, _, opened in self.events)

    def take_events(self) -> dict[str, list[list[int]]]:
        """The events since last asked, as [step, site, gate]."""
        self.look()
        fresh, self._taken = self.events[self._taken :], len(self.events)
        return {
            name: [[step, *self.session.locate(gate)] for step, gate, opened in fresh if opened is wanted]
            for name, wanted in (("closed", False), ("reopened", True))
        }

    def state_dict(self) -> dict[str, Any]:
        self.look()
        return {"events": list(self.events), "taken": self._taken}

    def load_state_dict(self, state: Mapping[str, Any], gates: Tensor) -> None:
        self.events = [(step, gate, opened) for step, gate, opened in state["events"]]
        self._taken = state["taken"]
        self._before = gates.bool().cpu()
        self._unseen.clear()
