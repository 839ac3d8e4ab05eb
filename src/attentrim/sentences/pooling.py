"""From one vector per token to one per text, as sentence-transformers' Pooling does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

LEAST = 1e-9
"""Of the number of tokens, so that nothing is divided by zero."""


def pooled(tokens: Tensor, mask: Tensor, modes: Sequence[str]) -> Tensor:
    """[batch, modes x width] from tokens [batch, length, width] and a mask that is 1 at valid ones, on either side.

    In float32 at least: sums over long texts are beyond what float16 holds.
    """
    wide = tokens if tokens.dtype == torch.float64 else tokens.float()
    return torch.cat([MODES[mode](wide, mask) for mode in modes], -1).to(tokens)


def _cls(tokens: Tensor, mask: Tensor) -> Tensor:
    """The first valid token."""
    return _at(tokens, mask.int().argmax(1))


def _last(tokens: Tensor, mask: Tensor) -> Tensor:
    return _at(tokens, mask.shape[1] - 1 - mask.int().flip(1).argmax(1))


def _at(tokens: Tensor, places: Tensor) -> Tensor:
    return tokens[torch.arange(len(tokens), device=tokens.device), places]


def _highest(tokens: Tensor, mask: Tensor) -> Tensor:
    return tokens.masked_fill(~mask.bool()[..., None], -torch.inf).amax(1)


def _sum(tokens: Tensor, weights: Tensor) -> Tensor:
    return (tokens * weights[..., None].to(tokens)).sum(1)


def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
    return _sum(tokens, mask) / _count(tokens, mask)


def _mean_by_root(tokens: Tensor, mask: Tensor) -> Tensor:
    """The sum over the root of the number of tokens."""
    return _sum(tokens, mask) / _count(tokens, mask).sqrt()


def _weighted_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """Weighted by the place among the valid tokens: 1, 2, 3, ..."""
    places = torch.arange(1, mask.shape[1] + 1, device=mask.device) - mask.int().argmax(1, keepdim=True)
    weights = places * mask
    return _sum(tokens, weights) / _count(tokens, weights)


def _count(tokens: Tensor, weights: Tensor) -> Tensor:
    return weights.sum(1, keepdim=True).to(tokens).clamp(min=LEAST)


MODES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": _cls,
    "max": _highest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_by_root,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
"""By the names that sentence-transformers gives them, in the order in which it concatenates them."""
