"""Engines that spread weights over processes, on a CPU."""

from __future__ import annotations

from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

ZERO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp2": {"fsdp": True},
    "zero2": {"deepspeed": {**ZERO, "zero_optimization": {"stage": 2}}},
    "zero3": {
        "deepspeed": {
            **ZERO,
            "zero_optimization": {
                "stage": 3,
                "stage3_gather_16bit_weights_on_model_save": True,
                "stage3_param_persistence_threshold": 0,  # a tiny model would stay whole
            },
        }
    },
}
"""TrainingArguments by engine."""


def allow_fsdp_on_cpus() -> None:
    """torch's FSDP2 runs on CPUs; accelerate leaves it out there, and trains in plain data parallelism instead."""
    init = AcceleratorState.__init__

    def init_with_fsdp(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        init(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            if self.mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self.mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init_with_fsdp
