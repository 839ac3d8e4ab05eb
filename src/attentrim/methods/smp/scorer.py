"""The parts of SMP that know nothing of transformers: the scorer, the draw, the distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

SHARPNESS = 10.0
"""Similarities are multiplied by this before the softmax."""
GROUP = 2
"""Samples are compared within groups of this size."""


class MapScorer(nn.Module):
    """One number for each attention map: 4x4 convolutions that halve the map, down to a point.

    A map of length 128 takes six: five of stride 2 (channels doubling, batch norm, LeakyReLU), and one over what is
    left.
    """

    def __init__(self, length: int, base_width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 1
        for depth in range(int(math.log2(length)) - 2):
            wider = base_width * 2**depth
            layers += [nn.Conv2d(channels, wider, 4, stride=2, padding=1, bias=depth == 0)]
            layers += [nn.BatchNorm2d(wider)] if depth else []
            layers += [nn.LeakyReLU(0.2)]
            channels = wider
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, 1, 4, bias=False))

    def forward(self, maps: Tensor) -> Tensor:
        """[maps, length, length] -> [maps]"""
        scores: Tensor = self.layers(maps.unsqueeze(1))
        return scores.flatten()


def fit(maps: Tensor, valid: Tensor | None, length: int) -> Tensor:
    """Attention maps [batch, heads, query, key] with padding zeroed, cut or filled up to length x length."""
    if valid is not None:
        pairs = valid[:, None, :, None] & valid[:, None, None, :]
        maps = maps * pairs
    maps = maps[..., :length, :length]
    missing = length - maps.shape[-1], length - maps.shape[-2]
    return nn.functional.pad(maps, (0, missing[0], 0, missing[1]))


def draw(scores: Tensor, count: int, temperature: float, generator: torch.Generator) -> Tensor:
    """A relaxed choice of `count` among the scores without putting back: Gumbel-softmax again and again."""
    uniform = torch.rand(scores.shape, generator=generator).clamp_(1e-6, 1 - 1e-6).to(scores.device)
    logits = scores - (-uniform.log()).log()
    chosen = torch.zeros_like(scores)
    for _ in range(count):
        share = torch.softmax(logits / temperature, dim=-1)
        chosen = chosen + share
        logits = logits + (1 - share).clamp_min(1e-6).log()
    return chosen.clamp(max=1.0)


def distance(before: Tensor, after: Tensor) -> Tensor:
    """How differently samples [batch, width] resemble each other before and after, within small groups."""
    usable = len(before) - len(before) % GROUP
    target, other = _resemblance(before[:usable]), _resemblance(after[:usable])
    return nn.functional.kl_div(other, target, log_target=True, reduction="sum") / max(usable, 1)


def _resemblance(states: Tensor) -> Tensor:
    """Log-probabilities [batch, group] that each sample resembles the members of its group, itself included."""
    centred = nn.functional.normalize(states - states.mean(0, keepdim=True), dim=-1)
    groups = centred.view(-1, GROUP, centred.shape[-1])
    return nn.functional.log_softmax(SHARPNESS * groups @ groups.transpose(1, 2), dim=-1).flatten(0, 1)
