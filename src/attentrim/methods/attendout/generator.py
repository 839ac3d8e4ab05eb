"""The generator (G-Net): one single-head self-attention layer, applied once for each site."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

SMALL = 0.5
"""Query and key weights start this much smaller than unit scale, so that all chances start near the prior."""


class Generator(nn.Module):
    """Makes the logits of P(keep) for the sites of one stack of layers, site after site.

        passes = generator.passes(hidden)       # what enters the stack, [batch, tokens, features]
        for each site:
            logits = passes.next(valid)

    Its attention scores are the logits; what it attends to is the state of the next pass. No feed-forward, no output
    layer, the same parameters in every pass (second version of the paper, section 4.1).
    """

    def __init__(
        self,
        features: int,
        *,
        width: int | None = None,
        prior: float = 0.0,
        unit: str = "pair",
        residual: bool = True,
        random: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        width = width or features
        self.width, self.prior, self.unit, self.residual = width, prior, unit, residual
        self.enter = nn.Identity() if width == features else nn.Linear(features, width, bias=False)
        self.projections = nn.Linear(width, 3 * width)
        """Query, key and value."""
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width) if residual else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5, generator=random)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.projections.weight[: 2 * width] *= SMALL

    def passes(self, hidden: Tensor) -> Passes:
        with torch.autocast(hidden.device.type, enabled=False):
            return Passes(self, self.norm(self.enter(hidden)))


class Passes:
    """The passes of a generator over one input; each is finished only when the next one needs it."""

    def __init__(self, generator: Generator, state: Tensor) -> None:
        self.generator, self.state = generator, state
        self._open: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def next(self, valid: Valid) -> Tensor:
        """The logits of P(keep) for the next site: [batch, query or 1, key or 1], by unit."""
        generator = self.generator
        with torch.autocast(self.state.device.type, enabled=False):
            if self._open is not None:
                context = nn.functional.scaled_dot_product_attention(*self._open).squeeze(1)
                after = generator.output(context)
                self.state = generator.norm(self.state + after) if generator.residual else after
            query, key, value = generator.projections(self.state).unsqueeze(1).chunk(3, -1)
            self._open = query, key, value, valid.attended
            scores = valid.mean_scores(query.squeeze(1), key.squeeze(1), generator.unit)
            logits: Tensor = scores * generator.width**-0.5 + generator.prior
            return logits


class Valid:
    """The pairs of real tokens of a batch, bool [batch, query, key], and what follows from them."""

    def __init__(self, pairs: Tensor) -> None:
        self.pairs = pairs

    @classmethod
    def among(cls, allowed: Tensor) -> Valid:
        """Read off the pairs that a site's own mask allows, [batch, heads, query, key].

        Masks leave the rows of padded queries open; a real token can always see itself.
        """
        allowed = allowed[:, 0] if allowed.stride(1) == 0 else allowed.any(1)  # mostly one mask for all heads
        if allowed.shape[-1] != allowed.shape[-2]:
            return cls(allowed)
        return cls(allowed & allowed.diagonal(dim1=-2, dim2=-1).unsqueeze(-1))

    @cached_property
    def attended(self) -> Tensor:
        """What the generator itself attends to; the rows of padded queries see all, as they must see something."""
        return (self.pairs | ~self.pairs.any(-1, keepdim=True)).unsqueeze(1)

    @cached_property
    def _by_key(self) -> Tensor:
        return self.pairs.transpose(-1, -2).float()

    @cached_property
    def _queries(self) -> Tensor:
        """How many queries see each key, [batch, key]."""
        return self._by_key.sum(-1)

    def mean_scores(self, query: Tensor, key: Tensor, unit: str) -> Tensor:
        """The mean product of query and key over the valid pairs that one decision covers."""
        if unit == "pair":
            return query @ key.transpose(-1, -2)
        totals = ((self._by_key @ query) * key).sum(-1)
        if unit == "key":
            return (totals / self._queries.clamp(min=1)).unsqueeze(-2)
        return (totals.sum(-1) / self._queries.sum(-1).clamp(min=1))[:, None, None]

    def decided(self, unit: str) -> Tensor:
        """Which decisions cover a valid pair at all, in the shape of the logits."""
        if unit == "pair":
            return self.pairs
        return self.pairs.any(-2, keepdim=True) if unit == "key" else self.pairs.flatten(1).any(1)[:, None, None]


def log_probability(logits: Tensor, kept: Tensor, counted: Tensor) -> Tensor:
    """Of each sample's decisions, averaged over those that count (before eq. 5): [batch]."""
    each = nn.functional.logsigmoid(torch.where(kept, logits, -logits))
    return mean_over(each, counted)


def mean_over(values: Tensor, counted: Tensor) -> Tensor:
    """The mean of each sample's values that count, [batch]; 0 where none does."""
    return (values * counted).flatten(1).sum(1) / counted.flatten(1).sum(1).clamp(min=1)
