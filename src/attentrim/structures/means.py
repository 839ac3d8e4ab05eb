"""Means over the tokens that a site may see: of the whole sequence, of each prefix, of each window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModelError
from ..masks import is_open


def valid_positions(
    mask: Any, hidden: Tensor, first: int | Tensor | None = None, binary: bool = False
) -> Tensor | None:
    """Which of the current tokens are not padding, [batch, tokens], read from the diagonal of the site's mask.

    None means that all are. `first` is the mask's column of the first token, where masks do not end at the last.
    A `binary` mask holds 1 and 0, whatever its dtype.
    """
    if mask is None:
        return None
    tokens = hidden.shape[1]
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return mask[:, -tokens:].bool()
    rows = torch.arange(tokens, device=hidden.device)
    columns = rows + (mask.shape[-1] - tokens if first is None else first)
    if not isinstance(mask, Tensor):
        # flex attention: the mask is a function of (batch, head, query, key)
        batch = torch.arange(mask.shape[0], device=hidden.device)[:, None]
        within: Tensor = mask.mask_mod(batch, torch.zeros_like(batch), rows, columns)
        return within.expand(mask.shape[0], tokens)
    # Gathered, because in ONNX torch.diagonal and indices make matrices as large as the mask.
    columns = columns.view((-1, 1) if mask.shape[2] > 1 else (1, -1)).expand(mask.shape[0], 1, -1, -1)
    diagonal = mask[:, :1].gather(-1, columns).flatten(1)
    return diagonal.bool() if binary else is_open(diagonal)


def mean_weights(valid: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Weights that average the valid positions of a sequence: [batch, 1, tokens]."""
    assert valid is not None
    weights = valid.to(torch.promote_types(dtype, torch.float32))
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1)
    return weights.to(dtype).unsqueeze(1)


def once_per_pass(site: Any, mask: Any, kind: Any, make: Callable[[], Tensor]) -> Tensor:
    """`make()`, remembered on the mask: all sites of one forward pass are handed the same mask object.

    On small inputs a GPU waits for the launches of a dozen tiny operators, which would cost more than attention does.
    A site that asks a second time begins another pass, for which the mask may have been changed in place.
    """
    if torch.compiler.is_compiling():
        return make()
    kind = (kind, torch.is_inference_mode_enabled())
    nothing: tuple[Any, Any, set[int]] = (None, None, set())
    known, value, served = getattr(mask, "_attentrim", nothing)
    if known != kind or id(site) in served:
        value, served = make(), set()
        mask._attentrim = (kind, value, served)
    served.add(id(site))
    return value  # type: ignore[no-any-return]


def _marks(hidden: Tensor, valid: Tensor | None, dtype: torch.dtype) -> Tensor:
    """1 for valid tokens, 0 for padding: [batch, tokens, 1]."""
    if valid is None:
        return hidden.new_ones(*hidden.shape[:-1], 1, dtype=dtype)
    return valid.to(dtype).unsqueeze(-1).expand(*hidden.shape[:-1], 1)


def sum_dtype(dtype: torch.dtype, device: str = "cpu") -> torch.dtype:
    """One step above the input: long sums of float32, and differences of such sums, lose the small digits."""
    single = dtype in (torch.float32, torch.float64) and device != "mps"
    return torch.float64 if single else torch.float32


def running_mean(site: Any, hidden: Tensor, valid: Tensor | None, cache: Any, past: Any) -> Tensor:
    """Mean over the valid prefix of each position. The cache holds running sums (values) and counts (keys)."""
    dtype = sum_dtype(hidden.dtype, hidden.device.type)
    marks = _marks(hidden, valid, dtype)
    sums, counts = (hidden.to(dtype) * marks).cumsum(1), marks.cumsum(1)
    if cache is not None:
        if isinstance(past, Tensor) or past > 0:
            layer = cache.layers[site.layer_idx]
            last = torch.as_tensor(past - 1, device=hidden.device).reshape(1)
            seen = (last >= 0).to(dtype)
            last = last.clamp(min=0)
            sums = sums + layer.values[:, 0].index_select(1, last) * seen
            counts = counts + layer.keys[:, 0].index_select(1, last) * seen
        cache.update(counts.unsqueeze(1), sums.unsqueeze(1), site.layer_idx)
    return (sums / counts.clamp(min=1)).to(hidden.dtype)


def mean_of_windows(site: Any, hidden: Tensor, valid: Tensor | None, cache: Any) -> Tensor:
    """Mean over the valid part of each position's window. The cache holds inputs (values) and marks (keys)."""
    marks, inputs = _marks(hidden, valid, hidden.dtype), hidden
    if cache is not None:
        if getattr(cache, "is_compileable", False):
            raise UnsupportedModelError(
                "A uniform site with a sliding window works with dynamic caches only: "
                "leave out cache_implementation (or set it to 'dynamic')."
            )
        keys, values = cache.update(marks.unsqueeze(1), hidden.unsqueeze(1), site.layer_idx)
        marks, inputs = keys[:, 0], values[:, 0]
    return windowed_mean(inputs, marks, site.attentrim_window, site.attentrim_causal)[:, -hidden.shape[1] :]


def windowed_mean(inputs: Tensor, marks: Tensor, window: int, causal: bool) -> Tensor:
    """Differences of prefix sums: no tensor of windows is made."""
    dtype = torch.float32 if inputs.device.type == "mps" else torch.float64
    tokens = inputs.shape[1]
    positions = torch.arange(tokens, device=inputs.device)
    first = (positions - window + 1).clamp(min=0)
    last = positions + 1 if causal else torch.minimum(positions + window, torch.full_like(positions, tokens))

    def in_window(values: Tensor) -> Tensor:
        prefix = nn.functional.pad(values.cumsum(1), (0, 0, 1, 0))
        return prefix.index_select(1, last) - prefix.index_select(1, first)

    marks = marks.to(dtype)
    return (in_window(inputs.to(dtype) * marks) / in_window(marks).clamp(min=1)).to(inputs.dtype)
