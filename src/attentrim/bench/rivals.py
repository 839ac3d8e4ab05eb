"""What a user would do instead of trimming attention: quantise the dense model, or prune it by magnitude."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from ..projections import is_conv1d
from ..sites import find_sites
from .backends import UnavailableError, place, with_attention
from .magnitude import prune_to_size


def make_rival(name: str, dense: Any, small: Any, attention: str) -> Any:
    """The rival's version of `dense`; where size is its setting, of about as many parameters as `small`."""
    twin = with_attention(place(dense, "cpu", torch.float32), attention)
    if name == "int8":
        return _int8(twin)
    return prune_to_size(twin, sum(parameter.numel() for parameter in small.parameters()))


def refuse_setting(name: str, device: str, dtype: str) -> None:
    if dtype == "tf32" and device != "cuda":
        raise UnavailableError("TF32 needs a CUDA device")
    if name == "int8" and (device, dtype) != ("cpu", "float32"):
        raise UnavailableError("dynamic int8 quantisation starts from float32 and runs on the CPU only")


def _int8(dense: Any) -> Any:
    """Weights of linear layers in 8 bits; activations are quantised as they come. Needs no data."""
    if any(is_conv1d(site.output) for site in find_sites(dense)):
        raise UnavailableError("its layers are Conv1D, which dynamic quantisation leaves as they are")
    with warnings.catch_warnings():
        # torch points to torchao, which is one more thing to install
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(dense, {nn.Linear}, dtype=torch.qint8)
