"""The engine that spreads a training over processes: which one it is, and what cannot be done under it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.state import AcceleratorState

from .errors import MethodError, TrainingError, UnsupportedModelError
from .methods import Method
from .sharding import full_shape
from .sites import unwrap
from .structures.layers import find_layers

FSDP, DEEPSPEED = "FSDP", "DeepSpeed"
INSTEAD = "Use DeepSpeed, or plain data parallelism."


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
        _check_shared(unwrap(trainer.model))
        return "FSDP2"
    for engine, field in ((FSDP, "fsdp"), (DEEPSPEED, "deepspeed")):
        if getattr(trainer.args, field) or os.environ.get(f"ACCELERATE_USE_{field.upper()}", "").lower() == "true":
            raise TrainingError(
                f"{engine} was requested, but accelerate does not use it on this {trainer.args.device.type}: training "
                f"would be plain data parallelism. Leave {field} out, or train on GPUs."
            )
    if getattr(trainer.model, "is_distributed_loading_by_transformers", False):
        raise TrainingError(
            "This model was sharded when it was loaded: load it without distributed_config, and shard it with fsdp."
        )
    return None


def _check_fsdp(plugin: Any) -> None:
    if plugin.fsdp_version != 2:
        raise TrainingError("FSDP1 is not supported: use FSDP2 (version 2 in fsdp_config).")
    if plugin.activation_checkpointing:
        raise TrainingError(
            "activation_checkpointing in fsdp_config renames the model's layers: use gradient_checkpointing instead."
        )
    if plugin.cpu_ram_efficient_loading:
        raise TrainingError(
            "cpu_ram_efficient_loading in fsdp_config leaves weights out of all processes but the first: set it to "
            "false."
        )


def _check_shared(model: Any) -> None:
    """Raise for models that accelerate cannot shard: it shards embeddings on their own, shared or not."""
    try:
        apart = [module for module in (model.get_input_embeddings(), model.get_output_embeddings()) if module]
    except NotImplementedError:
        raise UnsupportedModelError(
            f"FSDP2 cannot shard this {type(model).__name__}, which has no word embeddings. {INSTEAD}"
        ) from None
    taken = {id(parameter) for module in apart for parameter in module.parameters()}
    inside = {part for module in apart for part in module.modules()}
    for name, module in model.named_modules():
        for own, parameter in module.named_parameters(recurse=False):
            if id(parameter) in taken and module not in inside:
                raise UnsupportedModelError(
                    f"FSDP2 cannot shard this {type(model).__name__}: {name}.{own} is shared with the embeddings. "
                    f"{INSTEAD}"
                )


def check_engine(engine: str, trainer: Any, method: Method | None) -> None:
    """Raise where a model or a method cannot train under an engine."""
    shards_weights = not trainer.is_deepspeed_enabled or trainer.accelerator.state.deepspeed_plugin.zero_stage == 3
    if shards_weights and any(not math.prod(full_shape(part)) for part in trainer.model.parameters()):
        raise UnsupportedModelError(
            f"{engine} cannot shard weights that have no elements, as those of a trimmed model without any heads or "
            "neurons in a place do not. Use plain data parallelism."
        )
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
