"""Example inputs for any supported model, made from its config: for counting FLOPs and for export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .sites import unwrap


def example_inputs(
    model: Any, batch: int = 1, length: int = 128, *, padded: bool = False, seed: int = 0
) -> dict[str, Tensor]:
    """Random inputs by the model's parameter names; the last quarter of the first row is padding if `padded`.

    `length` is tokens for text and frames for speech; images have the size their model was made for.
    """
    model = unwrap(model)
    generator = torch.Generator().manual_seed(seed)
    text = getattr(model.config, "text_config", model.config)
    vision = getattr(model.config, "vision_config", model.config)
    inputs: dict[str, Tensor] = {}
    modalities = _modalities(model)
    if "text" in modalities:
        # the special ids are at either end of vocabularies; CLIP looks for its end-of-text token, the highest
        inputs["input_ids"] = torch.randint(5, text.vocab_size - 5, (batch, length), generator=generator)
        inputs["input_ids"][:, -1] = getattr(text, "eos_token_id", None) or inputs["input_ids"][:, -1]
    if "image" in modalities:
        shape = (batch, vision.num_channels, vision.image_size, vision.image_size)
        inputs["pixel_values"] = torch.randn(shape, generator=generator)
    if "audio" in modalities:
        inputs["input_values"] = torch.randn(batch, _samples(model.config, length), generator=generator)
    if "input_ids" in inputs or "input_values" in inputs:
        inputs["attention_mask"] = _attention_mask(next(iter(inputs.values())).shape, padded, "input_values" in inputs)
    if _is_seq2seq(model):
        inputs["decoder_input_ids"] = torch.randint(5, text.vocab_size - 5, (batch, length), generator=generator)
    return inputs


def _modalities(model: Any) -> set[str]:
    names = {"input_ids": "text", "pixel_values": "image", "input_values": "audio"}
    found = {names.get(model.main_input_name, "text")}
    if hasattr(model.config, "text_config") and hasattr(model, "text_model") and hasattr(model, "vision_model"):
        found = {"text", "image"}
    return found


def _is_seq2seq(model: Any) -> bool:
    """Models with a decoder that want its inputs; bart's classification heads shift the encoder's themselves."""
    return bool(model.config.is_encoder_decoder) and hasattr(model, "get_decoder") and model.config.model_type == "t5"


def _samples(config: Any, frames: int) -> int:
    """How many samples give that many frames."""
    for kernel, stride in reversed(list(zip(config.conv_kernel, config.conv_stride, strict=True))):
        frames = (frames - 1) * stride + kernel
    return frames


def _attention_mask(shape: torch.Size, padded: bool, audio: bool) -> Tensor:
    mask = torch.ones(shape, dtype=torch.long)
    if padded:
        mask[0, -(shape[1] // 4) :] = 0
    return mask
