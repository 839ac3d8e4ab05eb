"""Example inputs for any supported model, made from its config: for counting FLOPs and for export."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from .sites import unwrap

CHOICES = 2
"""Answers a question, for multiple-choice heads."""


def example_inputs(
    model: Any, batch: int = 1, length: int = 128, *, padding: str = "none", seed: int = 0
) -> dict[str, Tensor]:
    """Random inputs on the CPU, by the names of the model's parameters.

    `length` is tokens for text and frames for speech; images have the size their model was made for. With padding on
    the "right" or "left" the first row is whole and the others are shorter, each by another amount.
    """
    model = unwrap(model)
    accepted = inspect.signature(type(model).forward).parameters
    generator = torch.Generator().manual_seed(seed)
    inputs: dict[str, Tensor] = {}
    if "input_ids" in accepted:
        text = getattr(model.config, "text_config", model.config)
        inputs.update(_text(text, accepted, _texts(model, batch), length, padding, generator))
        if _decodes(model, accepted):
            inputs["decoder_input_ids"] = _ids(text, batch, length, generator)
    if "pixel_values" in accepted:
        inputs["pixel_values"] = _images(getattr(model.config, "vision_config", model.config), batch, generator)
    if "input_values" in accepted:
        samples = _samples(model.config, length)
        inputs["input_values"] = torch.randn(batch, samples, generator=generator)
        inputs["attention_mask"] = _mask(batch, samples, padding)
    if is_multiple_choice(model):
        inputs = {name: value.view(batch, CHOICES, -1) for name, value in inputs.items()}
    return inputs


def is_multiple_choice(model: Any) -> bool:
    """Heads that take [batch, choices, length] and score the choices."""
    return type(model).__name__.endswith("ForMultipleChoice")


def _texts(model: Any, batch: int) -> int:
    return batch * CHOICES if is_multiple_choice(model) else batch


def _decodes(model: Any, accepted: Collection[str]) -> bool:
    """Whether the caller feeds the decoder; classifiers, for example, feed it the shifted input of the encoder."""
    feeds_itself = type(model).__name__.endswith(("ForSequenceClassification", "ForQuestionAnswering"))
    return "decoder_input_ids" in accepted and not feeds_itself


def _text(
    config: Any, accepted: Collection[str], batch: int, length: int, padding: str, generator: torch.Generator
) -> dict[str, Tensor]:
    ids, mask = _ids(config, batch, length, generator), _mask(batch, length, padding)
    end = getattr(config, "eos_token_id", None)
    if isinstance(end, int) and end < config.vocab_size:
        # CLIP and seq2seq classifiers read the states at this token: one a row, the last that is not padding
        last = (mask * torch.arange(length)).argmax(1, keepdim=True)
        ids.scatter_(1, last, end)
    inputs = {
        "input_ids": ids.masked_fill(mask == 0, getattr(config, "pad_token_id", None) or 0),
        "attention_mask": mask,
    }
    types = getattr(config, "type_vocab_size", 0)
    if "token_type_ids" in accepted and types > 1:
        inputs["token_type_ids"] = torch.randint(0, types, (batch, length), generator=generator)
    return inputs


def _ids(config: Any, batch: int, length: int, generator: torch.Generator) -> Tensor:
    # special tokens are at either end of a vocabulary
    return torch.randint(5, config.vocab_size - 5, (batch, length), generator=generator)


def _images(config: Any, batch: int, generator: torch.Generator) -> Tensor:
    return torch.randn(batch, config.num_channels, config.image_size, config.image_size, generator=generator)


def _samples(config: Any, frames: int) -> int:
    """How many samples give that many frames."""
    for kernel, stride in reversed(list(zip(config.conv_kernel, config.conv_stride, strict=True))):
        frames = (frames - 1) * stride + kernel
    return frames


def _mask(batch: int, length: int, padding: str) -> Tensor:
    lengths = torch.full((batch, 1), length)
    if padding != "none":
        lengths -= torch.arange(batch)[:, None] * length // (2 * batch)
    positions = torch.arange(length)
    return (positions < lengths if padding != "left" else positions >= length - lengths).long()


def unpadded(model: Any, inputs: dict[str, Tensor], output: Tensor) -> Tensor | None:
    """Where an output that has a value for each input position is not padding; None if it has none, or no padding."""
    mask = inputs.get("attention_mask")
    if mask is None or "decoder_input_ids" in inputs:
        return None
    if "input_values" in inputs and output.dim() == 3:
        mask = model._get_feature_vector_attention_mask(output.shape[1], mask)
    return mask.bool() if output.shape[: mask.dim()] == mask.shape else None
