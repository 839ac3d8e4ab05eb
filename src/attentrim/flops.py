"""FLOPs of a model, counted by running its skeleton on the meta device."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from .duplicate import skeleton
from .inputs import example_inputs
from .sharding import shape_of
from .sites import unwrap


def flops(model: Any, batch: int = 1, length: int = 128) -> int:
    """FLOPs of one forward pass over full-length inputs (a multiplication and an addition are two).

    The head of a classifier that looks for the last token is left out: it depends on values, which a skeleton has not.
    """
    model = shape_of(unwrap(model))
    key = (batch, length, _structure(model))
    if key not in _COUNTED:
        _COUNTED[key] = _count_skeleton(skeleton(model), batch, length)
    return _COUNTED[key]


_COUNTED: dict[tuple[int, int, int], int] = {}
"""What was counted, by shape and structure: a command asks for the same model's FLOPs several times."""


def _structure(model: Any) -> int:
    """A hash of all that decides about FLOPs: classes, shapes, config."""
    modules = tuple((name, type(module)) for name, module in model.named_modules())
    parameters = tuple((name, parameter.shape) for name, parameter in model.named_parameters())
    return hash((modules, parameters, model.config.to_json_string(use_diff=False)))


def _count_skeleton(shape: Any, batch: int, length: int) -> int:
    shape.eval().requires_grad_(False)
    # the counter does not see into SDPA on CPU
    shape.set_attn_implementation("eager")
    # no look for padding in ids that have no values, nor for packed sequences, as without a cache
    shape.config.pad_token_id = None
    if hasattr(shape.config, "use_cache"):
        shape.config.use_cache = True
    try:
        return _count(shape, batch, length)
    except (RuntimeError, ValueError):
        return _count(shape.base_model, batch, length)


def _count(shape: Any, batch: int, length: int) -> int:
    inputs = {name: value.to("meta") for name, value in example_inputs(shape, batch, length).items()}
    inputs.pop("attention_mask", None)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        shape(**inputs)
    return counter.get_total_flops()


def most_tokens(model: Any) -> int:
    """Tokens that a model can take; RoBERTa-style models number positions from the one after padding's."""
    text = getattr(model.config, "text_config", model.config)
    positions = int(getattr(text, "max_position_embeddings", None) or sys.maxsize)
    padding = [
        module.padding_idx
        for name, module in model.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    ]
    return positions - padding[0] - 1 if padding else positions
