"""attentrim makes transformers smaller and faster: it removes attention heads, feed-forward neurons and layers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wrapt import register_post_import_hook

from .version import __version__ as __version__

if TYPE_CHECKING:
    # type checkers cannot see what __getattr__ finds; a test compares this block with it
    from .control import Control as Control
    from .cost import plan_cost as plan_cost
    from .distillation import Distillation as Distillation
    from .distillation.loss import distillation_loss as distillation_loss
    from .fitting import fit_outputs as fit_outputs
    from .methods import list_methods as list_methods
    from .methods.attendout import AttendOut as AttendOut
    from .methods.attention_dropout import AttentionDropout as AttentionDropout
    from .methods.attention_layerdrop import AttentionLayerDrop as AttentionLayerDrop
    from .methods.autoattention import AutoAttention as AutoAttention
    from .methods.drophead import DropHead as DropHead
    from .methods.fewer_layers import FewerLayers as FewerLayers
    from .methods.fisher import Fisher as Fisher
    from .methods.hisp import HISP as HISP
    from .methods.l0 import L0 as L0
    from .methods.layerdrop import LayerDrop as LayerDrop
    from .methods.random_heads import RandomHeads as RandomHeads
    from .methods.scheduled_dropout import ScheduledDropout as ScheduledDropout
    from .methods.similarity import Similarity as Similarity
    from .methods.smp import SMP as SMP
    from .methods.uniform_sites import UniformSites as UniformSites
    from .overview import summary as summary
    from .plan import Plan as Plan
    from .runs.recorder import RunRecorder as RunRecorder
    from .sentences.model import embedding_model as embedding_model
    from .sites import find_sites as find_sites
    from .surgery import portable as portable
    from .surgery import trim as trim
    from .trainer import Trainer as Trainer
    from .vocabulary import trim_vocabulary as trim_vocabulary

    __all__: list[str]

_HOMES = {
    "Control": "control",
    "Plan": "plan",
    "RunRecorder": "runs.recorder",
    "Trainer": "trainer",
    "Distillation": "distillation",
    "plan_cost": "cost",
    "embedding_model": "sentences.model",
    "fit_outputs": "fitting",
    "distillation_loss": "distillation.loss",
    "find_sites": "sites",
    "list_methods": "methods",
    "portable": "surgery",
    "summary": "overview",
    "trim": "surgery",
    "trim_vocabulary": "vocabulary",
}
"""Public names and the modules they are loaded from on first use: `import attentrim` itself imports no torch.

The classes of the methods are public too, those of plug-ins included: they come from the registry.
"""


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({*_HOMES, *_method_classes()})
    if name in _HOMES:
        value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    elif name[:1].isupper():  # `from . import plots` asks for 'plots' first: that must not import all methods
        value = _method_classes(built_in=True).get(name) or _method_classes().get(name)
    else:
        value = None
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


def _method_classes(*, built_in: bool = False) -> dict[str, Any]:
    """By the name of the class. All of them, or those that are here without importing a plug-in."""
    methods = importlib.import_module(".methods", __name__).METHODS
    found = methods.loaded.values() if built_in else [methods[name] for name in methods]
    return {method.__name__: method for method in found}


def _register_checkpoints(module: Any) -> None:
    importlib.import_module(".checkpoint.loader", __name__)


def _write_cards(module: Any) -> None:
    importlib.import_module(".card", __name__).cards_when_saving(module)


def _keep_cards(module: Any) -> None:
    importlib.import_module(".card", __name__).cards_of_sentence_transformers(module)


# Importing transformers' registry takes seconds, so wait until transformers itself does (at once, if it has already).
register_post_import_hook(_register_checkpoints, "transformers.quantizers.auto")
register_post_import_hook(_write_cards, "transformers.modeling_utils")
register_post_import_hook(_keep_cards, "sentence_transformers.base.model")
