"""What a latency table is true of: the shapes of a model, and a machine with its software."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from ..machine import cpu_name, package_version
from ..sharding import shape_of
from ..sites import unwrap
from ..structures.layers import find_layers

PACKAGES = ("torch", "transformers", "onnxruntime")


def described_model(model: Any) -> dict[str, Any]:
    """The type of a model and a fingerprint of the shapes of its layers: embeddings and task head do not count."""
    inner = shape_of(unwrap(model))
    shapes = [
        (layer.path, name, tuple(parameter.shape))
        for layer in find_layers(inner)
        for name, parameter in layer.module.named_parameters()
    ]
    digest = hashlib.sha256(repr((inner.config.model_type, shapes)).encode()).hexdigest()
    return {"type": inner.config.model_type, "shapes": digest[:16]}


def this_machine(device: str) -> dict[str, Any]:
    """The chip that does the work, and the versions that decide how."""
    import torch

    if device == "cuda":
        chip: dict[str, Any] = {"gpu": torch.cuda.get_device_name()}
    else:
        chip = {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return {**chip, **{name: package_version(name) for name in PACKAGES}}


def differences(known: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """What is not as it was, in words."""
    return [
        f"{name} {known.get(name)!r} there, {here.get(name)!r} here"
        for name in {**known, **here}
        if known.get(name) != here.get(name)
    ]
