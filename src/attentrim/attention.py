"""What one controlled site computes. `routing` installs this; nothing here knows how.

Everything is applied between the projections of a site, where queries, keys, values and the mask are available: score
masks (hard or soft) before the softmax, weight masks after it, uniform attention.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .errors import ControlError
from .masks import is_open

MASKABLE = ("eager", "sdpa")
"""Backends whose mask is a tensor of (query, key) pairs."""
SUPPORTED = (*MASKABLE, "flex_attention")
"""Backends for uniform sites."""
LEAST_REST = 0.1
"""Where a pair has nearly all attention, the gradient of a soft mask takes the others to have this much."""


Mask = Tensor | Callable[[Tensor], Tensor]
"""A mask over (query, key) pairs, or what makes one at each call from the pairs that the site's own mask allows."""


@dataclass(eq=False)
class SiteState:
    """What to leave out of one site. Plain attributes: methods own their tensors, and nothing enters state_dict."""

    name: str
    config: Any
    """The site's own config; its `_attn_implementation` names the backend."""
    routed: bool = False
    """Whether the site's attention comes through `controlled`; only then does anything below matter."""
    forward: tuple[str, Any] = ("", None)
    """The name and the former value of the attribute that holds the site's forward, where that was replaced."""
    score_mask: Mask | None = None
    """Bool, broadcastable to [batch, heads, query, key]: False drops the pair before the softmax."""
    soft_mask: Mask | None = None
    """As the score mask, in numbers from 0 to 1 that gradients flow into: they multiply exp(score)."""
    weight_mask: Mask | None = None
    """Broadcastable to [batch, heads, query, key]: multiplies the attention weights after the softmax."""
    uniform: bool | Tensor = False
    """True (or a tensor that is 1): constant attention over the keys that the site's own mask allows."""
    seen: list[str] | None = field(default=None, repr=False)
    """While a check runs: what was applied."""
    maps: list[Tensor] | None = field(default=None, repr=False)
    """While attention is recorded: the weights of each call, [batch, heads, query, key], before dropout."""

    @property
    def active(self) -> list[str]:
        """The names of what is at work."""
        names = ("score_mask", "soft_mask", "weight_mask")
        given = [name for name in names if getattr(self, name) is not None]
        return given + ["uniform"] * (self.uniform is not False)

    def clear(self) -> None:
        """Leave nothing out."""
        self.score_mask = self.soft_mask = self.weight_mask = None
        self.uniform = False

    @property
    def needs_weights(self) -> bool:
        """Whether the attention weights themselves are wanted, which fused kernels do not make."""
        return any(wanted is not None for wanted in (self.soft_mask, self.weight_mask, self.maps))

    @property
    def backend(self) -> str:
        return getattr(self.config, "_attn_implementation", None) or "eager"

    def __deepcopy__(self, memo: dict[int, Any]) -> SiteState:
        """A copied model starts with nothing to leave out: masks may belong to a running graph."""
        config, forward = copy.deepcopy((self.config, self.forward), memo)
        return SiteState(self.name, config, self.routed, forward)


def allowed_keys(mask: Tensor | None, causal: bool, queries: int, keys: int, device: torch.device) -> Tensor:
    """Which keys each query may see, bool [batch or 1, 1 or heads, query, key], from any mask transformers passes."""
    if mask is None:
        allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
        return allowed.tril(keys - queries) if causal and queries > 1 else allowed
    return is_open(mask)


def _pairs(mask: Mask, allowed: Tensor, batch: int, heads: int) -> Tensor:
    """A mask as a tensor of four axes; one [batch, query, key] is shared by the heads."""
    made = mask if isinstance(mask, Tensor) else mask(allowed.expand(batch, heads, -1, -1))
    return made.unsqueeze(1) if made.dim() == 3 else made


def _keep(mask: Mask, allowed: Tensor, batch: int, heads: int) -> tuple[Tensor, Tensor]:
    """Pairs to keep, and the rows that lost every key: those stay whole, to be made uniform by zero scores."""
    kept = allowed & _pairs(mask, allowed, batch, heads).bool()
    empty = ~kept.any(-1, keepdim=True)
    return torch.where(empty, allowed, kept), empty


def _let_gradient_in(weights: Tensor, scores: Tensor, share: Tensor, live: Tensor) -> Tensor:
    """The same attention weights, with a gradient into `share`: for each live pair, what the pair as a whole adds.

    Kept against dropped, the others as they are, moves attention by a(e - w): e is the pair alone, w all attention,
    and a is w / (1 - w) for a kept pair and, for a dropped one, the weight that it would have.
    """
    with torch.no_grad():
        total = torch.where((share > 0) & live, scores, -torch.inf).logsumexp(-1, keepdim=True)
        kept = weights / (1 - weights).clamp(min=LEAST_REST)
        move = torch.where(share > 0, kept, torch.sigmoid(scores - total)).masked_fill(~live, 0.0)
    change = ((share - share.detach()) * move).to(weights.dtype)
    return weights + change - change.sum(-1, keepdim=True) * weights.detach()


def _additive(mask: Tensor | None, keep: Tensor, dtype: torch.dtype) -> Tensor:
    lowest = torch.finfo(dtype).min
    if mask is not None and mask.is_floating_point():
        return torch.where(keep, mask.to(dtype), lowest)
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill(~keep, lowest)


def _open(uniform: bool | Tensor) -> float | Tensor:
    """The factor on the scores: 0 for a uniform site. A product, so that the graph is the same in every step."""
    if not isinstance(uniform, Tensor):
        return 0.0
    factor = 1.0 - uniform.to(torch.float32)
    return factor.view(-1, 1, 1, 1) if factor.dim() else factor  # one per sequence, or one for all


def _note(state: SiteState) -> None:
    if state.seen is not None:
        state.seen += state.active


def explicit(
    state: SiteState,
    scores: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    dropout: float,
    training: bool,
) -> tuple[Tensor, Tensor]:
    """Attention from ready scores [batch, heads, query, key]; the way for weight masks and for routed sites."""
    _note(state)
    batch, heads, queries, keys = scores.shape
    allowed = allowed_keys(mask, causal, queries, keys, scores.device)
    if state.uniform is not False:
        scores = scores * _open(state.uniform)
    share, before = None, mask
    if state.soft_mask is not None:
        share = _pairs(state.soft_mask, allowed, batch, heads).to(scores.dtype)
        scores = scores + share.detach().clamp(min=torch.finfo(scores.dtype).tiny).log() * (share > 0)
    hard = state.score_mask if share is None else (share > 0)
    if hard is not None:
        keep, empty = _keep(hard, allowed, batch, heads)
        scores = scores.masked_fill(empty, 0.0)
        mask = _additive(mask, keep, scores.dtype)
    elif causal if mask is None else not mask.is_floating_point():
        mask = _additive(None, allowed, scores.dtype)
    weights = nn.functional.softmax(scores if mask is None else scores + mask, dim=-1).to(value.dtype)
    if share is not None:
        bare = scores if before is None or not before.is_floating_point() else scores + before
        weights = _let_gradient_in(weights, bare, share, allowed & ~empty)
    if state.maps is not None:
        state.maps.append(weights)
    weights = nn.functional.dropout(weights, p=dropout, training=training)
    if state.weight_mask is not None:
        weights = weights * _pairs(state.weight_mask, allowed, batch, heads).to(weights.dtype)
    return torch.matmul(weights, value).transpose(1, 2), weights


def controlled(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """The function that transformers calls at a controlled site, in place of the one it would have called."""
    state: SiteState = module.attentrim  # type: ignore[assignment]
    backend = _backend(state)
    causal = kwargs.get("is_causal")
    causal = bool(getattr(module, "is_causal", False)) if causal is None else causal
    if state.needs_weights:
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        scaling = kwargs.get("scaling")
        scores = torch.matmul(query, key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if kwargs.get("position_bias") is not None:
            scores = scores + kwargs["position_bias"]
        dropout = kwargs.get("dropout", 0.0)
        return explicit(state, scores, value, attention_mask, causal=causal, dropout=dropout, training=module.training)
    _note(state)
    bias = kwargs.get("position_bias")
    if state.uniform is not False:
        factor = _open(state.uniform)
        query, key = (query * factor).to(query.dtype), (key * factor).to(key.dtype)
        bias = None if bias is None else (bias * factor).to(bias.dtype)
    if state.score_mask is not None:
        allowed = allowed_keys(attention_mask, causal, query.shape[2], key.shape[2], query.device)
        keep, empty = _keep(state.score_mask, allowed, query.shape[0], query.shape[1])
        query = query.masked_fill(empty, 0.0)
        bias = None if bias is None else bias.masked_fill(empty, 0.0)
        fused = backend == "sdpa" and (attention_mask is None or not attention_mask.is_floating_point())
        attention_mask = keep if fused else _additive(attention_mask, keep, query.dtype)
    if bias is not None:
        kwargs["position_bias"] = bias
    context, weights = _stock(module, backend)(module, query, key, value, attention_mask, **kwargs)
    return context, weights


def _backend(state: SiteState) -> str:
    """The backend of a site, if it can do what is asked."""
    backend = state.backend
    pairs = state.score_mask is not None or state.needs_weights
    if backend not in (MASKABLE if pairs else SUPPORTED):
        what = "Masks and recording need" if pairs else "Control needs"
        raise ControlError(
            f"{what} {' or '.join(MASKABLE)} attention; site {state.name} uses {backend!r}. "
            "Call model.set_attn_implementation('sdpa')."
        )
    return backend


def _stock(module: nn.Module, backend: str) -> Any:
    """The function that transformers would have called."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if backend == "eager":
        for cls in type(module).__mro__:
            function = getattr(sys.modules[cls.__module__], "eager_attention_forward", None)
            if function is not None:
                return function
    return ALL_ATTENTION_FUNCTIONS[backend]


def of_heads(bias: Tensor, heads: list[int]) -> Tensor:
    """Some heads of [batch, heads, ...], by slices: a list of indices would be copied to the GPU each time."""
    starts = [head for head in heads if head - 1 not in heads]
    ends = [head + 1 for head in heads if head + 1 not in heads]
    parts = [bias[:, start:end] for start, end in zip(starts, ends, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
