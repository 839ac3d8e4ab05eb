"""The engine that spreads a training over processes: which one it is, and what cannot be done under it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.state import AcceleratorState

from .errors import MethodError, TrainingError
from .methods import Method
from .structures.layers import find_layers

FSDP, DEEPSPEED = "FSDP", "DeepSpeed"


def check_launched(args: Any) -> None:
    """Raise where an engine is asked for in a process that is not one of several."""
    for engine, field in ((FSDP, "fsdp"), (DEEPSPEED, "deepspeed")):
        if getattr(args, field, None) and "LOCAL_RANK" not in os.environ:
            raise TrainingError(
                f"{engine} spreads weights over processes, and this is a single one: start it with torchrun or "
                f"accelerate launch, or leave {field} out."
            )


@contextmanager
def given_once(args: Any) -> Iterator[None]:
    """accelerate takes the settings of DeepSpeed from the first Trainer of a process, and no others after them."""
    plugin = args.deepspeed_plugin
    if AcceleratorState._shared_state.get("deepspeed_plugins") is not None:
        args.deepspeed_plugin = None
    try:
        yield
    finally:
        args.deepspeed_plugin = plugin


def engine_of(trainer: Any) -> str | None:
    """The engine of a transformers Trainer: 'FSDP2', 'DeepSpeed ZeRO-3'; None: one process, or plain data parallelism.

    Raises where it is one that would not do what it is asked for, or that is not known here.
    """
    state = trainer.accelerator.state
    if trainer.is_deepspeed_enabled:
        return f"{DEEPSPEED} ZeRO-{state.deepspeed_plugin.zero_stage}"
    if trainer.is_fsdp_enabled:
        _check_fsdp(state.fsdp_plugin)
        return "FSDP2"
    for engine, field in ((FSDP, "fsdp"), (DEEPSPEED, "deepspeed")):
        if getattr(trainer.args, field) or os.environ.get(f"ACCELERATE_USE_{field.upper()}", "").lower() == "true":
            raise TrainingError(
                f"{engine} is asked for, but accelerate does not use it on this {trainer.args.device.type}: training "
                f"would be plain data parallelism. Leave {field} out, or train on GPUs."
            )
    if getattr(trainer.model, "is_distributed_loading_by_transformers", False):
        raise TrainingError(
            "This model was sharded when it was loaded: load it without distributed_config, and shard it with fsdp."
        )
    return None


def _check_fsdp(plugin: Any) -> None:
    if plugin.fsdp_version != 2:
        raise TrainingError("FSDP1 is not supported: use FSDP2, version 2 in fsdp_config.")
    if plugin.activation_checkpointing:
        raise TrainingError(
            "activation_checkpointing in fsdp_config renames the model's layers: use gradient_checkpointing instead."
        )
    if plugin.cpu_ram_efficient_loading:
        raise TrainingError(
            "cpu_ram_efficient_loading in fsdp_config leaves weights out of all processes but the first: set it to "
            "false."
        )


def check_engine(engine: str, trainer: Any, method: Method | None) -> None:
    """Raise where a method cannot train under an engine."""
    if method is None:
        return
    if method.whole_weights:
        raise MethodError(
            f"{type(method).__name__} cannot train under {engine}: {method.whole_weights}. Use plain data parallelism."
        )
    if not trainer.is_deepspeed_enabled:
        return
    config = trainer.accelerator.state.deepspeed_plugin.deepspeed_config
    if trainer.args.fp16 or config.get("fp16", {}).get("enabled") is True:
        raise MethodError(
            f"{type(method).__name__} cannot train in float16 under {engine}, which scales gradients by itself: use "
            "bf16."
        )
    if method.restarts and "scheduler" in config:
        raise MethodError(
            f"{type(method).__name__} starts the learning rate's schedule again, which {engine}'s own scheduler "
            "cannot: leave scheduler out of its config."
        )


def shard_by_layer(trainer: Any) -> None:
    """Have FSDP2 shard layer by layer, unless told otherwise.

    By itself accelerate shards what transformers does not split, among it the embeddings of BERT-style models, and
    then the word embeddings within them once more, which fails.
    """
    plugin = trainer.accelerator.state.fsdp_plugin
    if plugin.transformer_cls_names_to_wrap is None:
        layers = {type(layer.module).__name__ for layer in find_layers(trainer.model)}
        plugin.transformer_cls_names_to_wrap = sorted(layers)
