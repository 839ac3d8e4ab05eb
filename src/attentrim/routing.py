"""Lead the attention of a live site through `attention.controlled`, and back."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from .attention import SiteState, controlled
from .sites import Site

NAME = "attentrim"
"""The attention implementation that routed sites ask transformers for, and the attribute that holds their state."""


def state_of(site: Site) -> SiteState | None:
    return getattr(site.module, NAME, None)


def attach(site: Site, config: Any) -> SiteState:
    """Give a site a state of its own. Its attention stays where it is until something needs it elsewhere."""
    module: Any = site.module
    module.attentrim = state = SiteState(name=site.name, config=getattr(module, "config", config))
    return state


def route(site: Site) -> SiteState:
    """From now on the site computes its attention as its state says."""
    state: SiteState | None = state_of(site)
    module: Any = site.module
    assert state is not None
    if state.routed:
        return state
    state.routed = True
    if site.layout.routed_forward is not None:
        # accelerate keeps the forward that its hooks wrap under another name
        name = "_old_forward" if hasattr(module, "_old_forward") else "forward"
        state.forward = (name, module.__dict__.get(name))
        setattr(module, name, partial(site.layout.routed_forward, module))
        return state
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, controlled)
    # Only the site sees this copy, so masks are still built for the backend that the model's own config names.
    module.config = copy.copy(state.config)
    module.config._attn_implementation_internal = NAME
    return state


def unroute(site: Site) -> None:
    """The site computes its attention as it did before it was routed."""
    state: SiteState | None = state_of(site)
    module: Any = site.module
    if state is None or not state.routed:
        return
    if site.layout.routed_forward is None:
        module.config = state.config
    else:
        _restore_forward(module, *state.forward)
    state.routed = False


def detach(site: Site) -> None:
    """Leave a site as it was found."""
    if state_of(site) is not None:
        unroute(site)
        del site.module.attentrim


def _restore_forward(module: Any, name: str, before: Any) -> None:
    if before is None:
        module.__dict__.pop(name, None)
    else:
        setattr(module, name, before)
