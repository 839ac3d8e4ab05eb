"""The plan by which a model was trimmed: in its config, and as a stamp among its weights that binds the two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers.utils.quantization_config import QuantizationConfigMixin

from ..guarded import is_number
from ..plan import Plan
from ..sites import find_sites

METHOD = "attentrim"
METHOD_IN_FILES = f"{METHOD} (import attentrim before loading)"
"""What config.json says instead: tools that do not know the method quote it in what they print."""
STAMP = "attentrim_plan"
"""The buffer that holds the fingerprint of the plan that the weights were cut by."""
SIZE = hashlib.sha256().digest_size


class TrimmedConfig(QuantizationConfigMixin):
    """What config.json says about a trimmed model."""

    def __init__(self, plan: Any = None, full_size: Any = None, **kwargs: Any) -> None:
        self.quant_method = METHOD_IN_FILES  # type: ignore[assignment]
        self.plan = plan
        self.full_size = _sizes(full_size)

    def to_dict(self) -> dict[str, Any]:
        size = {"full_size": self.full_size} if self.full_size else {}
        return {"quant_method": METHOD_IN_FILES, "plan": self.plan, **size}

    def get(self, key: str, default: Any = None) -> Any:
        """transformers reads the config of a loaded model in the same way as the dict in a file."""
        return self.to_dict().get(key, default)


def with_plan(model: Any, plan: Plan, size: Mapping[str, int] | None = None) -> None:
    """Write the plan into the config and among the weights that `save_pretrained` will save.

    `size` is that of the full model: parameters, FLOPs and the length that they are for. A plan that removes nothing
    leaves no trace.
    """
    if plan:
        model.config.quantization_config = TrimmedConfig(plan.to_dict(), size)
        add_stamp(model, fingerprint(plan))


def stored_plan(model: Any) -> Plan | None:
    """The plan by which a model was trimmed, in the numbering of the full model; None if it was not."""
    data = _stored(model)
    return Plan.from_dict(data.get("plan"), source="The plan stored in the model's config") if data else None


def full_size(model: Any) -> dict[str, int]:
    """The size of the model before it was trimmed; empty where it is not known."""
    return _sizes(_stored(model).get("full_size"))


def _sizes(found: Any) -> dict[str, int]:
    """Those that are numbers: a config is a file that anyone can edit."""
    return {name: size for name, size in found.items() if is_number(size)} if isinstance(found, Mapping) else {}


def _stored(model: Any) -> Mapping[str, Any]:
    stored: Any = getattr(model.config, "quantization_config", None)
    data = stored.to_dict() if hasattr(stored, "to_dict") else stored
    return data if isinstance(data, dict) and data.get("quant_method") in (METHOD, METHOD_IN_FILES) else {}


def fingerprint(plan: Plan) -> bytes:
    """32 bytes that differ where plans do. How a plan was made does not count."""
    content = {name: value for name, value in plan.to_dict().items() if name != "made_by"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def add_stamp(model: Any, content: bytes) -> None:
    """In the first site of every stack: parts of a model that are loaded alone carry it too."""
    for site in _first_sites(model):
        device = next(site.parameters()).device
        site.register_buffer(STAMP, torch.tensor(list(content), dtype=torch.uint8, device=device))


def stamps_of(model: Any) -> set[bytes]:
    """What the weights say; nothing where they say nothing, or are not in memory."""
    stamps: list[Tensor | None] = [getattr(site, STAMP, None) for site in _first_sites(model)]
    return {bytes(stamp.tolist()) for stamp in stamps if stamp is not None and not stamp.is_meta}


def _first_sites(model: Any) -> list[Any]:
    first: dict[str, Any] = {}
    for site in find_sites(model):
        first.setdefault(site.stack, site.module)
    return list(first.values())
