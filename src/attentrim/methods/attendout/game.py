"""The steps of a window: the attacker's under masks, then those of the other networks on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .draws import Draw, Round
from .gradients import stored_gradient
from .masks import Masks
from .parked import ParkedNetwork, RandomState
from .scores import first_samples

if TYPE_CHECKING:
    from . import AttendOut

Batch = dict[str, Any]


@dataclass
class Step:
    """What a dropout step needs to know of an optimiser step."""

    rounds: list[Round] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)


class Game:
    """The networks that train side by side: the attacker in the model, the others parked."""

    def __init__(self, method: AttendOut, model: Any, parameters: Sequence[nn.Parameter], masks: Masks) -> None:
        self.method, self.model, self.parameters, self.masks = method, model, parameters, masks
        self.until = 0
        """The step at which the game is over."""
        self.defender: ParkedNetwork | None = None
        """Learns from the same batches with the same noise, without masks, up to the next dropout step."""
        self.plain: ParkedNetwork | None = None
        """The same, and no dropout step changes it: a plain run to compare with."""
        self.window: list[Step] = []
        self.last_draw: Draw | None = None
        """The masks of the last batch of a window."""
        self.gradient: list[Tensor] = []
        """The attacker's, of the last step of a window; for the look-ahead alone."""
        self._step = Step()
        self._replays: list[tuple[Callable[[], Any], RandomState]] = []
        self._under_way = False
        self._ends_window = False

    def begin(self, until: int) -> None:
        """The others start from the model as it is."""
        self.until = until
        self.defender = ParkedNetwork(self.parameters) if self.method.needs_defender else None
        self.plain = ParkedNetwork(self.parameters) if self.method.plain_run else None

    @property
    def others(self) -> list[ParkedNetwork]:
        return [network for network in (self.defender, self.plain) if network is not None]

    @property
    def step_under_way(self) -> bool:
        """Whether the attacker has seen a batch since the last step."""
        return self._under_way

    def run_batch(self, run: Callable[[], Any], inputs: Mapping[str, Any], steps_done: int) -> Any:
        """The attacker's forward and backward of one batch; the others run it after the optimiser's step."""
        self._under_way = True
        self._ends_window = len(self.window) == self.method.window - 1 or steps_done == self.until - 1
        noise = RandomState(next(self.model.parameters()).device) if self.others else None
        with self.masks.for_training() as draw:
            result = run()
        self._remember(draw, inputs)
        if noise is not None:
            self._replays.append((run, noise))
        return result

    def _remember(self, draw: Draw, inputs: Mapping[str, Any]) -> None:
        """Of this batch, what the dropout step will need."""
        method = self.method
        if method.estimator == "policy":
            self._step.rounds.append(draw.close().first(method.cache_samples))
        if self._ends_window and method.estimator == "lookahead":
            self._step.batches.append(dict(inputs))
        elif method.reward_source == "cached":
            self._step.batches.append(first_samples(inputs, method.cache_samples))
        if self._ends_window:
            self.last_draw = draw

    def after_optimizer_step(self, optimizer: Any, clip: Callable[[], Any] | None) -> bool:
        """The attacker has taken its step: the others take theirs. Returns whether that was the last of the window."""
        self._under_way = False
        if self._ends_window and self.method.estimator == "lookahead":
            self.gradient = stored_gradient(self.parameters)
        for network in self.others:
            self.take_turn(network, optimizer, clip)
        self._replays.clear()
        self.window.append(self._step)
        self._step = Step()
        return self._ends_window

    def take_turn(self, network: ParkedNetwork, optimizer: Any, clip: Callable[[], Any] | None) -> None:
        """The batches of this step again, with the same noise, without masks."""
        self.model.zero_grad()
        with network.swapped_in(optimizer):
            for run, noise in self._replays:
                noise.restore()
                run()
            if clip is not None:
                clip()
            optimizer.step()
            self.model.zero_grad()

    def take_window(self) -> tuple[list[Step], Draw | None]:
        """The steps of the window that has ended, and its last masks; a new one starts."""
        window, draw = self.window, self.last_draw
        self.window, self.last_draw = [], None
        return window, draw

    def state_dict(self) -> dict[str, Any]:
        window = [{"rounds": [vars(one) for one in step.rounds], "batches": step.batches} for step in self.window]
        return {
            "defender": self.defender and self.defender.state_dict(),
            "plain": self.plain and self.plain.state_dict(),
            "window": window,
        }

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        for network, saved in ((self.defender, state["defender"]), (self.plain, state["plain"])):
            if network is not None and saved is not None:
                network.load_state_dict(saved)
        window = tree_map_only(Tensor, lambda tensor: tensor.to(device), state["window"])
        self.window = [Step([Round(**one) for one in step["rounds"]], step["batches"]) for step in window]
