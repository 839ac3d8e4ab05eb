"""FewerLayers at work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import AttentrimError, MethodError
from ...plan import Plan
from ..session import Session

if TYPE_CHECKING:
    from . import FewerLayers


class FewerLayersSession(Session):
    """Skips the chosen layers from the end of the dense steps on."""

    method: FewerLayers
    dense_until = 0
    """The first so many steps are plain fine-tuning."""

    def __init__(self, method: FewerLayers, model: Any, **surroundings: Any) -> None:
        super().__init__(method, model, **surroundings)
        self._finished = False
        self._skipped: tuple[int, ...] = ()
        try:
            self.chosen = self._choose()
            """The layers to remove."""
            self.planned({"layers": self.chosen})  # raises where one of them cannot go
        except AttentrimError:
            self.detach()
            raise

    def _choose(self) -> tuple[int, ...]:
        stacks: dict[str, list[int]] = {}
        for layer in self.control.places["layers"]:
            stacks.setdefault(layer.stack, []).append(layer.index)
        kept = {layers[place] for layers in stacks.values() for place in self.method.kept(len(layers))}
        return tuple(layer.index for layer in self.control.places["layers"] if layer.index not in kept)

    # The life of a session

    def begin(self, steps: int) -> None:
        super().begin(steps)
        self._finished = False
        self.dense_until = round(self.method.dense * steps)
        if self.dense_until >= steps:
            raise MethodError(f"No step is left to train without layers: all {steps} are dense. Lower dense_share.")

    def start_step(self) -> None:
        super().start_step()
        if self.method.dense:
            self.require_steps()

    def before_forward(self, training: bool) -> None:
        if self._skipped != self.removed_layers:
            self.control.clear()
            for index in self.removed_layers:
                self.control.set("layers", index)
            self._skipped = self.removed_layers

    def search(self) -> None:
        self._finished = True

    def finish(self) -> None:
        """Training that ended early leaves the layers out all the same."""
        self._finished = True

    # What it knows

    @property
    def removed_layers(self) -> tuple[int, ...]:
        return self.chosen if self._finished or self.steps_done >= self.dense_until else ()

    @property
    def settled(self) -> bool:
        return self.removed_layers == self.chosen

    def plan(self) -> Plan:
        return self.planned({"layers": self.removed_layers})

    def metrics(self) -> dict[str, float]:
        return {"layers_kept": len(self.control.places["layers"]) - len(self.removed_layers)}

    def record(self) -> dict[str, Any]:
        return {"layers_removed": list(self.removed_layers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._finished = False
