"""What happened to the gates over a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


class GateHistory:
    """Which gate closed or opened again at which step. Keeps the gates on the device until someone looks.

    Args:
        gates: The gates at the start.
        check: Called with (step, gates) at each look, for every step that is new; may raise.
        traced: How many gates, from the first one on, are followed one by one; all are counted.
    """

    def __init__(self, gates: Tensor, check: Callable[[int, Tensor], None], traced: int) -> None:
        self.check, self.traced = check, traced
        self.closings = self.reopenings = 0
        self.events: list[tuple[int, int, bool]] = []
        """(step, gate, whether it opened)"""
        self._before = gates.bool().cpu()
        self._unseen: list[tuple[int, Tensor]] = []
        self._reported = 0

    def note(self, step: int, gates: Tensor) -> None:
        """`gates` are never changed in place, so keeping them is enough."""
        if not self._unseen or self._unseen[-1][1] is not gates:
            self._unseen.append((step, gates))

    def look(self) -> None:
        """Work out what happened since the last look."""
        if not self._unseen:
            return
        steps = [step for step, _ in self._unseen]
        seen = torch.stack([gates for _, gates in self._unseen]).cpu()
        self._unseen.clear()
        for step, gates in zip(steps, seen, strict=True):
            self.check(step, gates)
            now = gates.bool()
            changed = now != self._before
            self.closings += int((changed & ~now).sum())
            self.reopenings += int((changed & now).sum())
            for gate in changed[: self.traced].nonzero().flatten().tolist():
                self.events.append((step, gate, bool(now[gate])))
            self._before = now

    def take_events(self, locate: Callable[[int], tuple[int, int]]) -> dict[str, list[list[int]]]:
        """The events since the last call, as [step, site, gate]."""
        self.look()
        fresh, self._reported = self.events[self._reported :], len(self.events)
        return {
            name: [[step, *locate(gate)] for step, gate, opened in fresh if opened is wanted]
            for name, wanted in (("closed", False), ("reopened", True))
        }

    def state_dict(self) -> dict[str, Any]:
        self.look()
        counts = [self.closings, self.reopenings]
        return {"events": list(self.events), "reported": self._reported, "counts": counts}

    def load_state_dict(self, state: Mapping[str, Any], gates: Tensor) -> None:
        self.events = [(step, gate, opened) for step, gate, opened in state["events"]]
        # version 0.1 wrote "taken"
        self._reported = state["reported"] if "reported" in state else state["taken"]
        known = (sum(not opened for *_, opened in self.events), sum(opened for *_, opened in self.events))
        self.closings, self.reopenings = state.get("counts", known)
        self._before = gates.bool().cpu()
        self._unseen.clear()
