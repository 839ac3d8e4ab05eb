"""Trimmed checkpoints load like stock ones: transformers calls us through its registry of quantisation methods.

config.json of a trimmed model carries the plan under `quantization_config`. While `from_pretrained` loads such a model
it hands us the skeleton, still without weights; we operate on it, and the weights on disk fit.
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
from transformers.utils.quantization_config import QuantizationConfigMixin

from .plan import Plan

METHOD = "attentrim"


class TrimmedConfig(QuantizationConfigMixin):
    """What config.json says about a trimmed model."""

    def __init__(self, plan: dict[str, Any], **kwargs: Any) -> None:
        self.quant_method = METHOD  # type: ignore[assignment]
        self.plan = plan

    def to_dict(self) -> dict[str, Any]:
        return {"quant_method": METHOD, "plan": self.plan}

    def get(self, key: str, default: Any = None) -> Any:
        """transformers reads the config of a model that is at hand as it reads the dict in a file."""
        return self.to_dict().get(key, default)


class TrimmedLoader(HfQuantizer):
    """Shapes the skeleton before the weights arrive. Nothing is quantised."""

    quantization_config: TrimmedConfig

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        from .sites import find_sites
        from .surgery import operate

        sites = find_sites(model)
        stored = Plan.from_dict(self.quantization_config.plan, source="The plan stored in config.json")
        # a part of the model (its encoder alone, say) can be loaded too
        self.plan = stored.restricted(sites)
        self.plan.check(sites)
        operate(model, self.plan)
        _compare_shapes(model)
        return model

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        from .surgery import freeze_unused

        freeze_unused(model)
        # A model that counts as quantised may not change its dtype and is refused by some tools.
        self.remove_quantization_config(model)  # type: ignore[no-untyped-call]
        for module in model.modules():
            if hasattr(getattr(module, "config", None), "_is_quantized"):
                del module.config._is_quantized
        with_plan(model, self.plan)
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


def _compare_shapes(model: Any) -> None:
    """Have weights of another shape reported, made anew or refused, as they are in a stock model.

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


def with_plan(model: Any, plan: Plan) -> None:
    """Write the plan into the config that `save_pretrained` will save. A plan that removes nothing leaves no trace."""
    if plan:
        model.config.quantization_config = TrimmedConfig(plan.to_dict())


def stored_plan(model: Any) -> Plan | None:
    """The plan by which a model was trimmed, in the numbering of the full model; None if it was not."""
    stored: Any = getattr(model.config, "quantization_config", None)
    data = stored.to_dict() if hasattr(stored, "to_dict") else stored
    if not isinstance(data, dict) or data.get("quant_method") != METHOD:
        return None
    return Plan.from_dict(data.get("plan"), source="The plan stored in the model's config")


# Importing this module is what makes `from_pretrained` know trimmed checkpoints.
if METHOD not in AUTO_QUANTIZATION_CONFIG_MAPPING:
    register_quantization_config(METHOD)(TrimmedConfig)
    register_quantizer(METHOD)(TrimmedLoader)
