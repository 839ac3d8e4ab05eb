"""LoRA: small matrices beside the linear layers are trained in place of them, and added to them when training ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import AttentrimError, MethodError, MissingExtraError, unknown_name
from ..methods import Method
from ..projections import is_projection
from ..sites import unwrap
from ..structures.layers import find_layers
from .settings import RunSettings, comma_separated

LEARNING_RATE = 2e-4
"""What LoRA learns at unless told otherwise: far above the rate of whole weights."""


def check_adapters(settings: RunSettings, method: Method | None) -> None:
    """Before anything is loaded."""
    if settings.lora_rank is None:
        for name in ("lora_alpha", "lora_targets"):
            if getattr(settings, name) is not None:
                raise AttentrimError(f"--{name} is for LoRA: set --lora_rank too.")
        return
    if settings.lora_rank < 1:
        raise AttentrimError(f"--lora_rank must be 1 or more. Got {settings.lora_rank}.")
    if settings.lora_alpha is not None and not settings.lora_alpha > 0:
        raise AttentrimError(f"--lora_alpha must be above 0. Got {settings.lora_alpha:g}.")
    if method is not None and method.no_adapters:
        raise MethodError(
            f"The method {method.name!r} cannot train with --lora_rank: {method.no_adapters}. Make the smaller model "
            "first, and train it with --method none --lora_rank."
        )
    _peft()


def with_adapters(model: Any, settings: RunSettings) -> Any:
    """The model in PEFT's wrapper. A task head is trained whole: it is small, and new more often than not."""
    assert settings.lora_rank is not None
    peft = _peft()
    config = peft.LoraConfig(
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank if settings.lora_alpha is None else settings.lora_alpha,
        target_modules=_targets(model, comma_separated(settings.lora_targets or "")),
        modules_to_save=_heads(model) or None,
    )
    return peft.get_peft_model(model, config)


def merged(model: Any) -> Any:
    """The model itself, what its adapters learned added to its weights."""
    return model.merge_and_unload() if hasattr(model, "peft_config") else model


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("peft", "peft", "--lora_rank") from error
    return peft


def _targets(model: Any, wanted: Sequence[str]) -> list[str]:
    """The linear layers inside the model's layers; of these, the ones that are called so."""
    found = [
        f"{layer.name}.{name}"
        for layer in find_layers(model)
        for name, module in layer.module.named_modules()
        if is_projection(module)
    ]
    known = sorted({name.rpartition(".")[2] for name in found})
    for name in wanted:
        if not any(f".{path}".endswith(f".{name}") for path in found):
            raise AttentrimError(f"--lora_targets: {unknown_name('linear layer', name, known)}")
    return [path for path in found if not wanted or any(f".{path}".endswith(f".{name}") for name in wanted)]


def _heads(model: Any) -> list[str]:
    """The task heads; none of a bare encoder, nor of a language model, whose head goes with the embeddings."""
    inner = unwrap(model)
    children = dict(inner.named_children())
    if inner.get_output_embeddings() is not None or inner.base_model_prefix not in children:
        return []
    heads = (name for name, child in children.items() if next(child.parameters(), None) is not None)
    return [name for name in heads if name != inner.base_model_prefix]
