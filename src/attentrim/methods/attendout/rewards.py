"""How much better the attacker is than the defender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...modes import evaluating
from .parked import ParkedNetwork
from .scores import scores_of

Groups = Sequence[Sequence[Mapping[str, Any]]]
"""Batches: of each step of a window, or one group for all steps."""


def step_rewards(model: Any, defender: ParkedNetwork, groups: Groups, steps: int, reward: str) -> Tensor:
    """r_t for each step of a window: the attacker's score less the defender's, masks off, [steps]."""
    with evaluating(model):
        attacker = _group_scores(model, groups, reward)
        with defender.swapped_in():
            rewards = attacker - _group_scores(model, groups, reward)
    return rewards.reshape(steps, -1).mean(1)


def _group_scores(model: Any, groups: Groups, reward: str) -> Tensor:
    """By sample where there is one group of batches, else by group."""
    found = iter(scores_of(model, [batch for group in groups for batch in group], reward))
    parts = [torch.cat([next(found) for _ in group]) for group in groups]
    return parts[0] if len(parts) == 1 else torch.stack([part.mean() for part in parts])
