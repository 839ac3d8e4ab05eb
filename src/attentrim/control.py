"""Switch parts of a live model off.

    with Control(model) as control:
        control.set("heads", 0, gates)      # one number per head (per key/value group where keys are shared)
        control.set("uniform", 3)
        model(**batch).loss.backward()

What was set stays until it is changed or the control is detached: gradient checkpointing runs the forward again during
backward and must find the same gates and masks, so leave the block only after `backward()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from . import routing
from .attention import Mask, SiteState
from .errors import ControlError
from .modes import evaluating
from .plan import Plan
from .sites import find_sites, unwrap
from .structures import STRUCTURES, kinds, places_of
from .structures.live import Hook, LiveGate, remove_hooks, spread


class Control:
    """Gates, masks and uniform sites on a live model.

    It attaches when it is created, and detaches at the end of a `with` block.
    """

    def __init__(self, model: Any) -> None:
        self.outer = model
        self.model = unwrap(model)
        self.places = places_of(self.model)
        self.sites = find_sites(self.model)
        self._states: dict[int, SiteState] = {}
        self._gates: dict[tuple[str, int], LiveGate] = {}
        self._all: dict[str, list[Any]] = {}
        self.attach()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def attach(self) -> None:
        """Attach to the model. Nothing is switched off yet."""
        if any(routing.state_of(site) for site in self.sites):
            raise ControlError("Another Control is attached to this model: detach it first.")
        self._states = {site.index: routing.attach(site, self.model.config) for site in self.sites}

    def detach(self) -> None:
        """Detach from the model and leave it as it was before."""
        for index, state in self._states.items():
            if routing.state_of(self.sites[index]) is state:
                routing.detach(self.sites[index])
        for held in (self._states, self._gates, self._all):
            held.clear()
        for model in (self.outer, self.model):
            remove_hooks(model)

    @property
    def attached(self) -> bool:
        return bool(self._states)

    def before_forward(self, action: Callable[[bool], None]) -> None:
        """Call `action(training)` before each forward of the model, until detached. The place to set new gates.

        Wrappers are covered too: PEFT's calls the forward of the inner model without its hooks.
        """
        for model in {id(model): model for model in (self.outer, self.model)}.values():
            self.on_call(model, lambda module, args, kwargs: action(module.training))

    def on_call(self, module: nn.Module, action: Callable[[nn.Module, Any, Any], None]) -> None:
        """Call `action(module, args, kwargs)` before each forward of a module, until detached."""
        module.register_forward_pre_hook(_OnCall(action), with_kwargs=True)

    # What to leave out, by kind of structure

    def set(self, kind: str, place: int, value: Any = True) -> None:
        """Set gates in one site, block or layer.

        For heads and neurons, `value` holds their gates: [units] or [batch, units] numbers that multiply the outputs,
        and receive gradients. For uniform sites and layers, it says how much is removed: True for all of it, or a
        tensor that is 1, of shape [] or [batch].
        """
        self._gate(kind, place).set(value)

    def unset(self, kind: str, place: int) -> None:
        """Undo `set` for one site, block or layer."""
        gate = self._gates.get((kind, place))
        if gate is not None:
            gate.clear()

    def set_all(self, kind: str, gates: Tensor) -> None:
        """Set the gates of all sites or blocks with one vector [units] or [batch, units], one after the other.

        What all of them need (the dtype that the model computes in, one value per feature) is computed once.
        """
        held = self._gateable(kind)
        sizes = {gate.size for gate in held}
        if len(sizes) == 1:
            values, widths = spread(gates, sizes.pop()), [gate.units * gate.size for gate in held]
            parts = values.to(held[0].dtype or values.dtype).split(widths, -1)
        else:
            units = gates.split([gate.units for gate in held], -1)
            parts = tuple(spread(part, gate.size) for gate, part in zip(held, units, strict=True))
        for gate, part in zip(held, parts, strict=True):
            gate.put(part)

    def apply(self, plan: Plan) -> None:
        """Switch off exactly what a plan removes."""
        plan = plan.fitted(self.model)
        self.clear()
        for kind in kinds():
            for index, units in plan.removed_of(kind.name).items():
                shape, gone = plan.shapes[kind.places][index], set(units)
                closed = [gate for gate in range(kind.gates(shape)) if gone.issuperset(kind.group(shape, gate))]
                self._gate(kind.name, index).close(closed)

    def clear(self) -> None:
        """Switch everything on again, and stay attached."""
        for gate in self._gates.values():
            gate.clear()
        for state in self._states.values():
            state.clear()

    # Attention

    def set_score_mask(self, site: int, keep: Mask | None) -> None:
        """Drop (query, key) pairs before the softmax. Shape [batch, (heads or 1,) query, key]; False drops a pair.

        A row that loses all its keys becomes uniform over the keys it could see. A function is called whenever the
        site runs, with the pairs that the site's own mask allows, bool [batch, heads, query, key]. If it uses torch's
        random numbers, it gives the same mask again when gradient checkpointing repeats the forward.
        """
        self._set_mask(site, "score_mask", keep)

    def set_soft_mask(self, site: int, share: Mask | None) -> None:
        """A score mask with numbers from 0 to 1 that receive gradients, also for dropped pairs."""
        self._set_mask(site, "soft_mask", share)

    def set_weight_mask(self, site: int, factor: Mask | None) -> None:
        """Multiply the attention weights after the softmax: [batch, (heads or 1,) query, key], or a function."""
        self._set_mask(site, "weight_mask", factor)

    @contextmanager
    def recording(self) -> Iterator[dict[int, list[Tensor]]]:
        """Collect the attention weights of every call of every site, [batch, heads, query, key], inside the block."""
        led_here = [site for site in self.sites if site.heads and not self._routed(site)]
        states = {site.index: self._state(site.index) for site in self.sites if site.heads}
        maps: dict[int, list[Tensor]] = {index: [] for index in states}
        for index, state in states.items():
            state.maps = maps[index]
        try:
            yield maps
        finally:
            for state in states.values():
                state.maps = None
            for site in led_here:  # what is trained afterwards takes the model's own, faster way
                if not states[site.index].active:
                    routing.unroute(site)

    # Making sure

    def check(self, **inputs: Any) -> None:
        """Run the model once, and raise an error unless everything that was set took effect."""
        gates = {where: gate for where, gate in self._gates.items() if gate.active}
        states = {index: state for index, state in self._states.items() if state.active}
        for gate in gates.values():
            gate.called = False
        for state in states.values():
            state.seen = []
        try:
            with evaluating(self.model), torch.no_grad():
                self.model(**inputs)
            for (kind, index), gate in gates.items():
                if not gate.called:
                    raise _ignored(STRUCTURES[kind].place, self.places[STRUCTURES[kind].places][index], [kind])
            for index, state in states.items():
                missed = [name for name in state.active if name not in (state.seen or [])]
                if missed:
                    raise _ignored("site", self.sites[index], missed)
        finally:
            for state in self._states.values():
                state.seen = None

    # Details

    def _gate(self, kind: str, index: int) -> LiveGate:
        """What gates a place, made when it is first needed."""
        if not self._states:
            raise ControlError("This control is detached: call attach() first.")
        structure = STRUCTURES[kind]
        here = self.places[structure.places]
        if not 0 <= index < len(here):
            raise ControlError(
                f"There is no {structure.place} {index}: this model has {structure.places} 0 to {len(here) - 1}."
            )
        place = here[index]
        if not structure.gates(place.shape):
            raise ControlError(f"{structure.place.capitalize()} {index} ({place.name}) has no {kind} left to control.")
        if (kind, index) not in self._gates:
            self._gates[kind, index] = structure.gate(place)
        return self._gates[kind, index]

    def _gateable(self, kind: str) -> Sequence[Any]:
        """The gates of all places of a kind that have units left."""
        if kind not in self._all:
            structure = STRUCTURES[kind]
            here = self.places[structure.places]
            self._all[kind] = [self._gate(kind, place.index) for place in here if structure.gates(place.shape)]
        return self._all[kind]

    def _state(self, site: int) -> SiteState:
        """The state of a site whose attention is led through ours from now on."""
        if not 0 <= site < len(self.sites):
            raise ControlError(f"There is no site {site}: this model has sites 0 to {len(self.sites) - 1}.")
        if not self.sites[site].heads:
            raise ControlError(f"Site {site} ({self.sites[site].name}) has no heads left to control.")
        if site not in self._states:
            raise ControlError("This control is detached: call attach() first.")
        return routing.route(self.sites[site])

    def _routed(self, site: Any) -> bool:
        state = routing.state_of(site)
        return state is not None and state.routed

    def _set_mask(self, site: int, kind: str, mask: Mask | None) -> None:
        state, found = self._state(site), self.sites[site]
        if isinstance(mask, Tensor):
            if mask.dim() not in (3, 4) or (mask.dim() == 4 and mask.shape[1] not in (1, found.heads)):
                raise ControlError(
                    f"The {kind.replace('_', ' ')} of site {site} must be [batch, query, key] or "
                    f"[batch, {found.heads} or 1, query, key]. Got {list(mask.shape)} instead."
                )
            if kind == "score_mask" and mask.dtype is not torch.bool:
                raise ControlError(f"A score mask must be bool (True keeps a pair). Got {mask.dtype} instead.")
        setattr(state, kind, mask)


def _ignored(noun: str, place: Any, missed: Sequence[str]) -> ControlError:
    return ControlError(
        f"{noun.capitalize()} {place.index} ({place.name}) ignored what should be left out: {', '.join(missed)}."
    )


class _OnCall(Hook):
    """A forward pre-hook that calls an action."""

    def __init__(self, action: Callable[[nn.Module, Any, Any], None]) -> None:
        self.action = action

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self.action(module, args, kwargs)


def detach(model: Any) -> None:
    """Take any control off a model, whoever attached it."""
    remove_hooks(model)
    for site in find_sites(model):
        routing.detach(site)
