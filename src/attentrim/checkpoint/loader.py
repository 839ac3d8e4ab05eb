"""Trimmed checkpoints load like stock ones: transformers calls us through its registry of quantisation methods.

config.json of a trimmed model carries the plan under `quantization_config`. While `from_pretrained` loads such a model
it hands us the skeleton, still without weights; we operate on it, and the weights on disk fit. The weights carry the
fingerprint of the plan that they were cut by: a config with another plan is refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.quantizers.auto import (
    AUTO_QUANTIZATION_CONFIG_MAPPING,
    register_quantization_config,
    register_quantizer,
)
from transformers.quantizers.base import HfQuantizer

from ..errors import PlanError
from ..plan import Plan
from ..structures import kinds
from ..surgery import freeze_unused, operate
from .stored import METHOD, METHOD_IN_FILES, SIZE, TrimmedConfig, add_stamp, fingerprint, stamps_of, with_plan


class TrimmedLoader(HfQuantizer):
    """Shapes the skeleton before the weights arrive. Nothing is quantised."""

    quantization_config: TrimmedConfig

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        data = self.quantization_config.plan
        stored = Plan.from_dict(data, source="The plan stored in config.json")
        self.wanted = fingerprint(stored) if data["version"] > 1 else None
        # What the config itself says is done already.
        done = _in_config()
        # A part of the model (its encoder alone, say) can be loaded too.
        plan = stored.remainder(done).restricted(model).fitted(model)
        operate(model, plan)
        self.plan = _completed(stored, plan)
        if self.wanted is not None:
            add_stamp(model, bytes(SIZE))
        _compare_shapes(model)
        return model

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        _check_stamp(model, self.wanted)
        freeze_unused(model)
        # A model that counts as quantised may not change its dtype and is refused by some tools.
        self.remove_quantization_config(model)  # type: ignore[no-untyped-call]
        for module in model.modules():
            if hasattr(getattr(module, "config", None), "_is_quantized"):
                del module.config._is_quantized
        with_plan(model, self.plan, self.quantization_config.full_size)
        return model

    def is_serializable(self, *args: Any, **kwargs: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return True

    @property
    def is_qat_trainable(self) -> bool:
        return True

    @property
    def is_compileable(self) -> bool:
        return True


def _in_config() -> list[str]:
    return [kind.name for kind in kinds() if kind.in_config]


def _completed(stored: Plan, part: Plan) -> Plan:
    """The plan that a loaded model keeps: the stored one, or its part where only a part of the model was loaded."""
    whole = {places: len(found) for places, found in stored.remainder(_in_config()).shapes.items()}
    here = {places: len(found) for places, found in part.shapes.items() if places in whole}
    if whole != here:
        return part
    return stored if stored.shapes.keys() == part.shapes.keys() else part


def _check_stamp(model: Any, wanted: bytes | None) -> None:
    """Raise if the weights were not cut by the plan in the config."""
    found = stamps_of(model)
    if wanted is None or found <= {wanted}:
        return
    raise PlanError(
        "The plan in config.json does not match these weights: the files are from different models, or the plan was "
        "edited."
    )


def _compare_shapes(model: Any) -> None:
    """Report, reinitialise or reject weights of another shape, as a stock model does.

    transformers compares no shapes where a quantisation method is at work: a head with another number of labels would
    be replaced by the one in the file. This is done at the first step after loading that asks the model anything.
    """
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    next_step = model.mark_tied_weights_as_initialized

    def mark_mismatches(loading_info: Any) -> None:
        del model.mark_tied_weights_as_initialized
        for name, parameter in list(model.named_parameters()):
            shape = shapes.get(name, parameter.shape)
            if parameter.shape != shape:
                loading_info.mismatched_keys.add((name, parameter.shape, shape))
                path, _, leaf = name.rpartition(".")
                empty = torch.empty(shape, dtype=parameter.dtype, device="meta")
                setattr(model.get_submodule(path), leaf, nn.Parameter(empty))
        next_step(loading_info)

    model.mark_tied_weights_as_initialized = mark_mismatches


# Importing this module is what makes `from_pretrained` know trimmed checkpoints.
for method in (METHOD, METHOD_IN_FILES):
    if method not in AUTO_QUANTIZATION_CONFIG_MAPPING:
        register_quantization_config(method)(TrimmedConfig)
        register_quantizer(method)(TrimmedLoader)
