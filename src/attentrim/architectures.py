"""Where attention lives in each supported architecture: one declarative table.

Adding an architecture is one entry here and one line in `tests/zoo.py`. A `Layout` says what cannot be read off the
modules themselves: the names of the projections, the attributes that count heads, and what a site does around them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import routed

if TYPE_CHECKING:
    import torch
    from torch import nn

Arguments = dict[str, Any]
"""The arguments of one call of a site, by the names in its stock signature."""

Finish = Callable[["nn.Module", Arguments, "torch.Tensor", "torch.Tensor | None"], tuple[Any, ...]]
"""`finish(site, arguments, output, weights)`: what a stock site does after its output projection, and its return."""


def _pair(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    return output, weights


def _albert(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    return site.LayerNorm(arguments["hidden_states"] + site.output_dropout(output)), weights


def _gpt2(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    return site.resid_dropout(output), weights


def _modernbert(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    return site.out_drop(output), weights


def _mpnet(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    return (output, weights) if arguments.get("output_attentions") else (output,)


def _t5(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    return output, arguments["position_bias"], weights


def _wav2vec2(site: Any, arguments: Arguments, output: Any, weights: Any) -> tuple[Any, ...]:
    # older releases return a third item, always None, and say so in their annotation
    return (output, weights, None)[: max(2, site.returned_items)]


def _module_is_causal(site: Any) -> bool:
    return bool(getattr(site, "is_causal", False))


def _clip_is_causal(site: Any) -> bool:
    # CLIP's text model passes is_causal=True to sites that say False
    return bool(site.config.model_type == "clip_text_model")


def _module_window(site: Any) -> int | None:
    return getattr(site, "sliding_window", None)


def _config_window(site: Any) -> int | None:
    return getattr(site.config, "sliding_window", None)


@dataclass(frozen=True)
class Layout:
    """How one architecture spells a self-attention site. Paths are relative to the site module."""

    site: str
    """The last parts of a site's module path, which tell it from cross-attention."""
    output: str
    """The output projection; a leading '..' steps up to the parent module."""
    query: str = ""
    key: str = ""
    value: str = ""
    fused: str = ""
    """One projection whose output features are query, key and value in this order, instead of the three above."""
    positions: tuple[str, ...] = ()
    """Further projections with one block of output features a head, where the model has them."""
    head_size: str = "head_dim"
    """The attribute that holds the size of one head."""
    head_counts: tuple[str, ...] = ()
    """Attributes that count heads and are read by the stock forward."""
    widths: tuple[str, ...] = ()
    """Attributes equal to heads times head size that are read by the stock forward."""
    mask: str = "attention_mask"
    """The parameter of the stock forward that takes the mask."""
    binary_mask: bool = False
    """The mask holds 1 and 0 even where its dtype is a float."""
    shared_bias: bool = False
    """A position bias made once for all sites and heads of the stack is added to the scores."""
    shared_positions: tuple[str, ...] = ()
    """Modules, by path below the stack of layers, that serve only the scores of the stack's sites."""
    finish: Finish = _pair
    causal: Callable[[Any], bool] = _module_is_causal
    window: Callable[[Any], int | None] = _module_window
    """Keys a query may see on either side, itself included; None for all."""
    routed_forward: Callable[..., Any] | None = None
    """A forward through `control.attend`, for sites that do not use transformers' attention interface."""
    only_eager_onnx: bool = False
    """The ONNX exporter needs the eager backend."""

    @property
    def output_in_parent(self) -> bool:
        return self.output.startswith("..")

    @property
    def projections(self) -> tuple[str, ...]:
        """The projections whose output features belong to heads, by path."""
        return (self.fused,) if self.fused else (self.query, self.key, self.value)


_BERT = Layout(
    site="attention.self",
    query="query",
    key="key",
    value="value",
    output="..output.dense",
    head_size="attention_head_size",
    head_counts=("num_attention_heads",),
    widths=("all_head_size",),
)

_LLAMA = Layout(site="self_attn", query="q_proj", key="k_proj", value="v_proj", output="o_proj")

_BART = replace(_LLAMA, output="out_proj", head_counts=("num_heads",))

_CLIP = replace(_BART, causal=_clip_is_causal)

ARCHITECTURES: dict[str, Layout] = {
    "albert": replace(_BERT, site="attention", output="dense", finish=_albert),
    "bart": _BART,
    "bert": _BERT,
    "camembert": _BERT,
    "clip": _CLIP,
    "clip_text_model": _CLIP,
    "clip_vision_model": _CLIP,
    "deberta-v2": replace(
        _BERT,
        query="query_proj",
        key="key_proj",
        value="value_proj",
        positions=("pos_key_proj", "pos_query_proj"),
        binary_mask=True,
        shared_positions=("rel_embeddings", "LayerNorm"),
        routed_forward=routed.deberta_v2,
    ),
    "distilbert": Layout(
        site="attention",
        query="q_lin",
        key="k_lin",
        value="v_lin",
        output="out_lin",
        head_size="attention_head_size",
        head_counts=("n_heads",),
    ),
    "electra": _BERT,
    "gpt2": Layout(
        site="attn",
        fused="c_attn",
        output="c_proj",
        head_counts=("num_heads",),
        widths=("split_size",),
        finish=_gpt2,
    ),
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, window=_config_window),
    "modernbert": Layout(site="attn", fused="Wqkv", output="Wo", finish=_modernbert),
    "mpnet": Layout(
        site="attention.attn",
        query="q",
        key="k",
        value="v",
        output="o",
        head_size="attention_head_size",
        head_counts=("num_attention_heads",),
        widths=("all_head_size",),
        shared_bias=True,
        shared_positions=("relative_attention_bias",),
        finish=_mpnet,
        routed_forward=routed.mpnet,
    ),
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "roberta": _BERT,
    "t5": Layout(
        site="SelfAttention",
        query="q",
        key="k",
        value="v",
        output="o",
        head_size="key_value_proj_dim",
        widths=("inner_dim",),
        mask="mask",
        shared_bias=True,
        shared_positions=("block.0.layer.0.SelfAttention.relative_attention_bias",),
        finish=_t5,
        only_eager_onnx=True,
    ),
    "vit": replace(_LLAMA, site="attention", head_counts=("num_attention_heads",)),
    "wav2vec2": replace(_BART, site="attention", finish=_wav2vec2),
    "xlm-roberta": _BERT,
}
