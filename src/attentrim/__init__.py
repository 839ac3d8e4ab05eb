"""attentrim takes needless attention out of transformers: smaller, faster checkpoints that give the same answers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wrapt import register_post_import_hook

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .control import Control
    from .distillation import Distillation
    from .distillation.loss import distillation_loss
    from .methods import list_methods
    from .methods.attendout import AttendOut
    from .methods.attention_dropout import AttentionDropout
    from .methods.attention_layerdrop import AttentionLayerDrop
    from .methods.autoattention import AutoAttention
    from .methods.drophead import DropHead
    from .methods.hisp import HISP
    from .methods.l0 import L0
    from .methods.layerdrop import LayerDrop
    from .methods.random_heads import RandomHeads
    from .methods.scheduled_dropout import ScheduledDropout
    from .methods.smp import SMP
    from .methods.uniform_sites import UniformSites
    from .overview import summary
    from .plan import Plan
    from .runs.recorder import RunRecorder
    from .sites import find_sites
    from .surgery import portable, trim
    from .trainer import Trainer

_HOMES = {
    "ScheduledDropout": "methods.scheduled_dropout",
    "LayerDrop": "methods.layerdrop",
    "DropHead": "methods.drophead",
    "AttentionLayerDrop": "methods.attention_layerdrop",
    "AttendOut": "methods.attendout",
    "AttentionDropout": "methods.attention_dropout",
    "AutoAttention": "methods.autoattention",
    "Control": "control",
    "HISP": "methods.hisp",
    "L0": "methods.l0",
    "Plan": "plan",
    "RandomHeads": "methods.random_heads",
    "RunRecorder": "runs.recorder",
    "SMP": "methods.smp",
    "Trainer": "trainer",
    "UniformSites": "methods.uniform_sites",
    "Distillation": "distillation",
    "distillation_loss": "distillation.loss",
    "find_sites": "sites",
    "list_methods": "methods",
    "portable": "surgery",
    "summary": "overview",
    "trim": "surgery",
}
"""Public names and the modules they are loaded from on first use: `import attentrim` itself imports no torch."""

__all__ = [
    "HISP",
    "L0",
    "SMP",
    "AttendOut",
    "AttentionDropout",
    "AttentionLayerDrop",
    "AutoAttention",
    "Control",
    "Distillation",
    "DropHead",
    "LayerDrop",
    "Plan",
    "RandomHeads",
    "RunRecorder",
    "ScheduledDropout",
    "Trainer",
    "UniformSites",
    "distillation_loss",
    "find_sites",
    "list_methods",
    "portable",
    "summary",
    "trim",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def _register_checkpoints(module: Any) -> None:
    importlib.import_module(".checkpoint.loader", __name__)


def _write_cards(module: Any) -> None:
    importlib.import_module(".card", __name__).cards_when_saving(module)


# Importing transformers' registry takes seconds, so wait until transformers itself does (at once, if it has already).
register_post_import_hook(_register_checkpoints, "transformers.quantizers.auto")
register_post_import_hook(_write_cards, "transformers.modeling_utils")
