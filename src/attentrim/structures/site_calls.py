"""What the forward of a trimmed site has in common with the stock one: its arguments, its cache, its return value."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..architectures import Layout


def named_arguments(site: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names in the stock signature."""
    return {**dict(zip(site.parameters_of_forward, args, strict=False)), **kwargs}


def finish(site: Any, arguments: dict[str, Any], context: Tensor, past: Any) -> tuple[Any, ...]:
    """Project (where that is the site's own job), and return what the stock site would."""
    layout: Layout = site.attentrim_layout
    hidden = arguments["hidden_states"]
    # One entry per site, in place: zero heads. Without it the maps of later sites would move up in `attentions`.
    weights = context.new_zeros(context.shape[0], 0, *2 * hidden.shape[1:2]) if _is_eager(site) else None
    if layout.shared_bias:
        arguments["position_bias"] = full_bias(site, arguments, past)
    if layout.output_in_parent:
        return context, weights
    output = site.get_submodule(layout.output)(context)
    return layout.finish(site, arguments, output.expand(-1, hidden.shape[1], -1), weights)


def _is_eager(site: Any) -> bool:
    """Read past the config's own look-up, which takes longer than the launch of a small matrix product."""
    config = site.__dict__.get("config")
    return config is None or config.__dict__.get("_attn_implementation_internal", "eager") == "eager"


def full_bias(site: Any, arguments: dict[str, Any], past: Any) -> Tensor | None:
    """The position bias for all heads of the stack: as handed in, or made here if this is t5's first block."""
    bias: Tensor | None = arguments.get("position_bias")
    if bias is not None or not hasattr(site, "compute_bias"):
        return bias
    hidden, mask = arguments["hidden_states"], arguments.get("mask")
    keys = hidden.shape[1] + past if mask is None else mask.shape[-1]
    bias = site.compute_bias(hidden.shape[1], keys, device=hidden.device, past_seen_tokens=past)
    return bias.to(hidden.dtype)


def cache_of(arguments: dict[str, Any]) -> Any:
    cache = arguments.get("past_key_values")
    return getattr(cache, "self_attention_cache", cache)


def tells_length(cache: Any, index: int) -> bool:
    """Whether this layer of a cache must know how many tokens there were: masks are made by the first of each kind."""
    sliding = getattr(cache, "is_sliding", [])
    kind = index < len(sliding) and sliding[index]
    return index == 0 or kind not in sliding[:index]


def tokens_before(site: Any, arguments: dict[str, Any]) -> Any:
    """Tokens already cached: an int, or a tensor for a static cache (which changes it in place: hence the copy)."""
    cache = cache_of(arguments)
    past = 0 if cache is None else cache.get_seq_length(site.layer_idx)
    return past.clone() if isinstance(past, Tensor) else past
