"""The one seam through which a live model is told what attention to leave out.

    with Control(model) as control:
        control.set_gates(0, gates)         # one number a head (a key/value group where keys are shared)
        control.set_uniform(3)
        model(**batch).loss.backward()

What was set stays until it is changed or the control is detached: gradient checkpointing runs the forward again during
backward and must find the same gates and masks, so leave the block only after `backward()`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .attention import Mask, SiteState, controlled
from .errors import ControlError
from .modes import evaluating
from .sites import Site, find_sites, unwrap

if TYPE_CHECKING:
    from .plan import Plan

NAME = "attentrim"
"""The attention implementation that the controlled sites ask transformers for."""


class Control:
    """Gates, masks and uniform sites on a live model. Attaches on creation, detaches at the end of a `with` block."""

    def __init__(self, model: Any) -> None:
        self.outer = model
        self.model = unwrap(model)
        self.sites = find_sites(self.model)
        self._states: dict[int, SiteState] = {}
        self._skips: dict[int, _SkipBlock] = {}
        self.attach()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def attach(self) -> None:
        """Route every site that has heads through this control. Asks nothing of them yet."""
        from transformers import AttentionInterface

        if any(hasattr(site.module, NAME) for site in self.sites):
            raise ControlError("This model is under control already: detach the other Control first.")
        AttentionInterface.register(NAME, controlled)
        for site in self.sites:
            if site.heads:
                self._states[site.index] = _attach(site, self.model.config)

    def detach(self) -> None:
        """Leave the model as it was found."""
        for index, state in self._states.items():
            if getattr(self.sites[index].module, NAME, None) is state:
                _detach(self.sites[index], state)
        self._states.clear()
        self._skips.clear()
        for model in (self.outer, self.model):
            _remove_hooks(model)

    @property
    def attached(self) -> bool:
        return bool(self._states)

    def before_forward(self, action: Callable[[bool], None]) -> None:
        """Call `action(training)` before each forward of the model, until detached: the moment to set fresh gates.

        A wrapper is watched too: PEFT's calls the forward of the model inside without its hooks.
        """
        for model in {id(model): model for model in (self.outer, self.model)}.values():
            self.on_call(model, lambda module, args, kwargs: action(module.training))

    def on_call(self, module: nn.Module, action: Callable[[nn.Module, Any, Any], None]) -> None:
        """Call `action(module, args, kwargs)` before each forward of a module, until detached."""
        module.register_forward_pre_hook(_OnCall(action), with_kwargs=True)

    def set_gates(self, site: int, gates: Tensor | Sequence[float] | None) -> None:
        """[groups] or [batch, groups] numbers that multiply the heads' outputs; gradients flow into them."""
        state, found = self._state(site), self.sites[site]
        if gates is not None and not isinstance(gates, Tensor):
            gates = torch.tensor(gates, dtype=torch.float32, device=_device(found))
        if gates is not None and (gates.dim() not in (1, 2) or gates.shape[-1] != found.groups):
            unit = "heads" if found.heads == found.groups else "key/value groups"
            raise ControlError(
                f"Site {site} has {found.groups} {unit}: gates must be [{found.groups}] or "
                f"[batch, {found.groups}]. Got {list(gates.shape)} instead."
            )
        state.gates = gates

    def set_score_mask(self, site: int, keep: Mask | None) -> None:
        """True keeps a (query, key) pair, False drops it before the softmax: [batch, (heads or 1,) query, key].

        A row that loses all its keys turns uniform over the keys it could see. A function is called at every call of
        the site, with the pairs that the site's own mask allows, bool [batch, heads, query, key]; one that draws from
        torch's own random numbers draws the same again when gradient checkpointing runs the forward a second time.
        """
        self._set_mask(site, "score_mask", keep)

    def set_soft_mask(self, site: int, share: Mask | None) -> None:
        """As a score mask, in numbers from 0 to 1 into which gradients flow; those of dropped pairs too."""
        self._set_mask(site, "soft_mask", share)

    def set_weight_mask(self, site: int, factor: Mask | None) -> None:
        """Multiplies the attention weights after the softmax: [batch, (heads or 1,) query, key], or a function."""
        self._set_mask(site, "weight_mask", factor)

    def set_uniform(self, site: int, uniform: bool | Tensor = True) -> None:
        """Make the attention of a site constant over the keys that its own mask allows."""
        self._state(site).uniform = uniform if isinstance(uniform, Tensor) else bool(uniform)

    def set_skip(self, site: int, skip: Tensor | None) -> None:
        """Where `skip` (a number) is 1, the layer that holds the site passes its input on; 0 changes nothing.

        The layer still runs, so the graph is the same in every step and no parameter goes without a gradient.
        """
        self._state(site)
        if site in self._skips:
            self._skips[site].skip = skip
        elif skip is not None:
            self._skips[site] = _SkipBlock(self.model.get_submodule(self.sites[site].block), skip)

    def apply(self, plan: Plan) -> None:
        """Ask for just what a plan removes: closed gates and uniform sites."""
        plan.check(self.sites)
        self.clear()
        for site in self.sites:
            removed = plan.heads.get(site.index, ())
            if removed:
                open_gates = torch.ones(site.groups, device=_device(site))
                open_gates[[head // site.heads_per_group for head in removed]] = 0.0
                self.set_gates(site.index, open_gates)
        for index in plan.uniform:
            self.set_uniform(index)

    def clear(self) -> None:
        """Ask nothing; stay attached."""
        for state in self._states.values():
            state.gates = state.score_mask = state.soft_mask = state.weight_mask = None
            state.uniform = False
        for skipped in self._skips.values():
            skipped.skip = None

    @contextmanager
    def recording(self) -> Iterator[dict[int, list[Tensor]]]:
        """Collect the attention weights of every call of every site, [batch, heads, query, key], while this lasts."""
        maps: dict[int, list[Tensor]] = {index: [] for index in self._states}
        for index, state in self._states.items():
            state.maps = maps[index]
        try:
            yield maps
        finally:
            for state in self._states.values():
                state.maps = None

    def check(self, **inputs: Any) -> None:
        """Run the model once and raise unless every site that something is asked of applied it.

        Closed gates are looked for where they must show: as exact zeros in the input of the output projection.
        """
        asked = {index: state.asked for index, state in self._states.items() if state.asked}
        contexts: dict[int, Tensor] = {}
        hooks = [
            self.sites[index].output.register_forward_pre_hook(partial(_record, contexts, index)) for index in asked
        ]
        try:
            for index in asked:
                self._states[index].seen = []
            with evaluating(self.model), torch.no_grad():
                self.model(**inputs)
            for index, wanted in asked.items():
                self._check_site(index, wanted, contexts.get(index))
        finally:
            for hook in hooks:
                hook.remove()
            for state in self._states.values():
                state.seen = None

    def _check_site(self, index: int, wanted: list[str], context: Tensor | None) -> None:
        state, site = self._states[index], self.sites[index]
        missed = [name for name in wanted if name not in (state.seen or [])]
        if missed or context is None:
            raise ControlError(
                f"Site {index} ({site.name}) ignored what was asked of it: {', '.join(missed or wanted)}."
            )
        if state.gates is not None and state.gates.dim() == 1:
            closed = (state.gates == 0).repeat_interleave(site.heads_per_group)
            heads = context.reshape(*context.shape[:-1], site.heads, site.head_size)
            if heads[..., closed, :].any():
                raise ControlError(f"Site {index} ({site.name}): the output of a closed head is not zero.")

    def _state(self, site: int) -> SiteState:
        if not 0 <= site < len(self.sites):
            raise ControlError(f"There is no site {site}: this model has sites 0 to {len(self.sites) - 1}.")
        if not self.sites[site].heads:
            raise ControlError(f"Site {site} ({self.sites[site].name}) has no heads left to control.")
        if site not in self._states:
            raise ControlError("This control is detached: call attach() first.")
        return self._states[site]

    def _set_mask(self, site: int, kind: str, mask: Mask | None) -> None:
        state, found = self._state(site), self.sites[site]
        if mask is not None and not isinstance(mask, Tensor):
            setattr(state, kind, mask)
            return
        if mask is not None and (
            mask.dim() not in (3, 4) or (mask.dim() == 4 and mask.shape[1] not in (1, found.heads))
        ):
            raise ControlError(
                f"The {kind.replace('_', ' ')} of site {site} must be [batch, query, key] or "
                f"[batch, {found.heads} or 1, query, key]. Got {list(mask.shape)} instead."
            )
        if mask is not None and kind == "score_mask" and mask.dtype is not torch.bool:
            raise ControlError(f"A score mask must be bool (True keeps a pair). Got {mask.dtype} instead.")
        setattr(state, kind, mask)


class _OnCall:
    """A forward pre-hook that a copy of the model does not inherit."""

    def __init__(self, action: Callable[[nn.Module, Any, Any], None] | None = None) -> None:
        self.action = action

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.action is not None:
            self.action(module, args, kwargs)

    def __reduce__(self) -> tuple[type[_OnCall], tuple[()]]:
        return _OnCall, ()


class _SkipBlock:
    """A forward hook that mixes a layer's input into its output; a copy of the model does not inherit it."""

    def __init__(self, block: nn.Module | None = None, skip: Tensor | None = None) -> None:
        self.skip = skip
        if block is not None:
            block.register_forward_hook(self, with_kwargs=True)

    def __call__(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if self.skip is None:
            return output
        before = args[0] if args else kwargs["hidden_states"]
        after = output if isinstance(output, Tensor) else output[0]
        mixed = torch.lerp(after, before, self.skip.to(after))
        return mixed if isinstance(output, Tensor) else (mixed, *output[1:])

    def __reduce__(self) -> tuple[type[_SkipBlock], tuple[()]]:
        return _SkipBlock, ()


def _remove_hooks(model: nn.Module) -> None:
    for module in model.modules():
        for hooks, with_kwargs, kind in (
            (module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs, _OnCall),
            (module._forward_hooks, module._forward_hooks_with_kwargs, _SkipBlock),
        ):
            for key in [key for key, hook in hooks.items() if isinstance(hook, kind)]:
                del hooks[key]
                with_kwargs.pop(key, None)


def detach(model: Any) -> None:
    """Take any control off a model, whoever attached it."""
    _remove_hooks(model)
    for site in find_sites(model):
        state: SiteState | None = getattr(site.module, NAME, None)
        if state is not None:
            _detach(site, state)


def _detach(site: Site, state: SiteState) -> None:
    if site.layout.routed_forward is None:
        site.module.config = state.config
    else:
        _restore_forward(site.module)
    del site.module.attentrim


def _attach(site: Site, config: Any) -> SiteState:
    module: Any = site.module
    state = SiteState(name=site.name, config=getattr(module, "config", config))
    module.attentrim = state
    if site.layout.routed_forward is not None:
        # accelerate keeps the forward that its hooks wrap under another name
        name = "_old_forward" if hasattr(module, "_old_forward") else "forward"
        module.attentrim_forward = (name, module.__dict__.get(name))
        setattr(module, name, partial(site.layout.routed_forward, module))
        return state
    # Only the site sees this copy, so masks are still built for the backend that the model's own config names.
    module.config = copy.copy(state.config)
    module.config._attn_implementation_internal = NAME
    return state


def _restore_forward(module: Any) -> None:
    name, before = module.attentrim_forward
    del module.attentrim_forward
    if before is None:
        delattr(module, name)
    else:
        setattr(module, name, before)


def _record(contexts: dict[int, Tensor], index: int, module: nn.Module, args: tuple[Any, ...]) -> None:
    contexts[index] = args[0]


def _device(site: Site) -> torch.device:
    return next(site.output.parameters()).device
