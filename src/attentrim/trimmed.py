"""What the modules of a trimmed model are: stock classes with one method changed.

A site whose attention changed kind gets a generated subclass of its stock class, so isinstance checks, parameter names
and everything else about it stay. Three kinds of site (`UniformSite`, `HeadlessSite`, `SubsetSite`), two kinds of
output projection (`ProjectOnce`, `BiasOnly`).
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .architectures import Layout
from .attention import of_heads
from .errors import UnsupportedModelError
from .masks import is_open


class Trimmed:
    """Base of the kinds. `stock` is the class that the module had before."""

    stock: type[nn.Module]
    parameters_of_forward: tuple[str, ...]
    returned_items: int

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        kind = next(cls for cls in type(self).__mro__ if cls in KINDS)
        return _rebuild, (kind, self.stock), self.__dict__


@functools.cache
def _generate(kind: Any, stock: Any) -> Any:
    signature = inspect.signature(stock.forward)
    body = {
        "stock": stock,
        "parameters_of_forward": tuple(signature.parameters)[1:],
        "returned_items": len(typing.get_args(signature.return_annotation)),
    }
    return type(f"{kind.__name__}{stock.__name__}", (kind, stock), body)


def _rebuild(kind: Any, stock: Any) -> Any:
    cls = _generate(kind, stock)
    return cls.__new__(cls)


def become(module: nn.Module, kind: Any) -> None:
    """Change what a module is, in place; its parameters and children stay."""
    stock: Any = type(module)
    module.__class__ = _generate(kind, getattr(module, "stock", stock))
    if "_old_forward" in module.__dict__:
        # accelerate's hooks hold on to the forward that they wrapped
        module._old_forward = types.MethodType(type(module).forward, module)  # type: ignore[assignment]


def _arguments(site: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(site.parameters_of_forward, args, strict=False)), **kwargs}


def _finish(site: Any, arguments: dict[str, Any], context: Tensor, past: Any) -> tuple[Any, ...]:
    """Project (where that is the site's own job), and return what the stock site would."""
    layout: Layout = site.attentrim_layout
    hidden = arguments["hidden_states"]
    # One entry a site, in place: zero heads. Without it the maps of later sites would move up in `attentions`.
    weights = context.new_zeros(context.shape[0], 0, *2 * hidden.shape[1:2]) if _is_eager(site) else None
    if layout.shared_bias:
        arguments["position_bias"] = full_bias(site, arguments, past)
    if layout.output_in_parent:
        return context, weights
    output = site.get_submodule(layout.output)(context)
    return layout.finish(site, arguments, output.expand(-1, hidden.shape[1], -1), weights)


def _is_eager(site: Any) -> bool:
    """Read past the config's own look-up, which takes longer than a small matrix product is launched in."""
    config = site.__dict__.get("config")
    return config is None or config.__dict__.get("_attn_implementation_internal", "eager") == "eager"


def full_bias(site: Any, arguments: dict[str, Any], past: Any) -> Tensor | None:
    """The position bias for all heads of the stack: as handed in, or made here if this is t5's first block."""
    bias: Tensor | None = arguments.get("position_bias")
    if bias is not None or not hasattr(site, "compute_bias"):
        return bias
    hidden, mask = arguments["hidden_states"], arguments.get("mask")
    keys = hidden.shape[1] + past if mask is None else mask.shape[-1]
    bias = site.compute_bias(hidden.shape[1], keys, device=hidden.device, past_seen_tokens=past)
    return bias.to(hidden.dtype)


def _cache(arguments: dict[str, Any]) -> Any:
    cache = arguments.get("past_key_values")
    return getattr(cache, "self_attention_cache", cache)


def _past(site: Any, arguments: dict[str, Any]) -> Any:
    """Tokens already cached: an int, or a tensor for a static cache (which changes it in place: hence the copy)."""
    cache = _cache(arguments)
    past = 0 if cache is None else cache.get_seq_length(site.layer_idx)
    return past.clone() if isinstance(past, Tensor) else past


class SubsetSite(Trimmed):
    """Some heads are gone, and a bias made for all of them enters the scores."""

    kept_heads: list[int]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(self, args, kwargs)
        bias = full_bias(self, arguments, _past(self, arguments))
        arguments["position_bias"] = None if bias is None else of_heads(bias, self.kept_heads)
        result = super().forward(**arguments)  # type: ignore[misc]
        # t5 hands the bias on to the next block, which may have other heads
        return (result[0], bias, *result[2:]) if hasattr(self, "compute_bias") else result


class HeadlessSite(Trimmed):
    """No head is left: only the bias of the output projection is added."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(self, args, kwargs)
        past = _past(self, arguments)
        hidden: Tensor = arguments["hidden_states"]
        cache = _cache(arguments)
        if cache is not None:
            # The first site's cache tells the model how many tokens it has seen, unless it is empty.
            marker = hidden.new_zeros(hidden.shape[0], 1, hidden.shape[1], 1)
            cache.update(marker, marker, self.layer_idx)  # type: ignore[attr-defined]
        return _finish(self, arguments, hidden[..., :0], past)


class UniformSite(Trimmed):
    """Constant attention, folded: a mean over the keys that the site's mask allows, then one matrix."""

    attentrim_layout: Layout
    attentrim_causal: bool
    attentrim_window: int | None
    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(self, args, kwargs)
        past = _past(self, arguments)
        hidden: Tensor = arguments["hidden_states"]
        mask, cache = arguments.get(self.attentrim_layout.mask), _cache(arguments)
        # the masks of a static cache are as wide as it may become; others end at the current token
        first = past if getattr(cache, "is_compileable", False) else None
        if self.attentrim_window is not None:
            context = _windowed(self, hidden, self._valid(mask, hidden, first), cache)
        elif self.attentrim_causal:
            context = _running(self, hidden, self._valid(mask, hidden, first), cache, past)
        else:
            context = self._mean(mask, hidden, first)
            # One row for all positions, which what follows broadcasts; dropout would draw for each position.
            context = context.expand_as(hidden) if self.training else context
        return _finish(self, arguments, context, past)

    def _mean(self, mask: Any, hidden: Tensor, first: int | Tensor | None) -> Tensor:
        if mask is None:
            return hidden.mean(1, keepdim=True)
        dtype = hidden.dtype
        weights = once_a_pass(self, mask, dtype, lambda: mean_weights(self._valid(mask, hidden, first), dtype))
        return torch.bmm(weights, hidden) if weights.shape[0] == hidden.shape[0] else torch.matmul(weights, hidden)

    def _valid(self, mask: Any, hidden: Tensor, first: int | Tensor | None) -> Tensor | None:
        return valid_positions(mask, hidden, first, self.attentrim_layout.binary_mask)


class ProjectOnce(Trimmed):
    """The output projection of a uniform site that sees the whole sequence: all its input rows are the same one."""

    training: bool

    def forward(self, context: Tensor) -> Tensor:
        if not self.training:
            return super().forward(context)  # type: ignore[misc, no-any-return]
        projected: Tensor = super().forward(context[:, :1])  # type: ignore[misc]
        return projected.expand(*context.shape[:-1], projected.shape[-1])


class BiasOnly(Trimmed):
    """The output projection of a site without heads."""

    bias: Tensor | None
    training: bool
    weight: Tensor

    def forward(self, context: Tensor) -> Tensor:
        shape = (*context.shape[:-1], max(self.weight.shape))
        output = context.new_zeros(shape) if self.bias is None else self.bias.expand(shape)
        # An empty sum: adds nothing, and lets what lies before the site receive its (zero) gradients.
        return output + context.sum() if self.training else output


KINDS = (SubsetSite, HeadlessSite, UniformSite, ProjectOnce, BiasOnly)


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


def once_a_pass(site: Any, mask: Any, kind: Any, make: Callable[[], Tensor]) -> Tensor:
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


def _sum_dtype(hidden: Tensor) -> torch.dtype:
    """One step above the input: long sums of float32, and differences of such sums, lose the small digits."""
    single = hidden.dtype in (torch.float32, torch.float64) and hidden.device.type != "mps"
    return torch.float64 if single else torch.float32


def _running(site: Any, hidden: Tensor, valid: Tensor | None, cache: Any, past: Any) -> Tensor:
    """Mean over the valid prefix of each position. The cache holds running sums (values) and counts (keys)."""
    dtype = _sum_dtype(hidden)
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


def _windowed(site: Any, hidden: Tensor, valid: Tensor | None, cache: Any) -> Tensor:
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
