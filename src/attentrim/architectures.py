"""Where attention, feed-forward blocks and layers live in each supported architecture: one declarative table.

Adding an architecture is one entry here and one line in `tests/zoo.py`. A `Layout` says what cannot be read off the
modules themselves: the names of the projections, the attributes that count heads, what a site does around them, and
which entries of the config say how wide and how deep the model is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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


def _layer_window(site: Any) -> int | None:
    # what SmolLM3's masks go by, whatever `use_sliding_window` says
    sliding = site.config.layer_types[site.layer_idx] == "sliding_attention"
    return site.config.sliding_window if sliding else None


def _any_layer(config: Any, place: int) -> str | None:
    return None


def _albert_layer(config: Any, place: int) -> str | None:
    return "all layers of a group share their weights"


def _deberta_layer(config: Any, place: int) -> str | None:
    if place == 0 and getattr(config, "conv_kernel_size", 0) > 0:
        return "a convolution follows the first layer, whichever that is"
    return None


def _gpt2_layer(config: Any, place: int) -> str | None:
    if config.scale_attn_by_inverse_layer_idx:
        return "attention is scaled by the number of its layer (scale_attn_by_inverse_layer_idx)"
    return None


def _modernbert_layer(config: Any, place: int) -> str | None:
    return "the first layer is the one without a norm before its attention" if place == 0 else None


@dataclass(frozen=True)
class FeedForward:
    """How one architecture spells a feed-forward block. Paths are relative to the module that holds all of them."""

    inputs: tuple[str, ...]
    """The projections into the block, the gate of a gated block included; those that a model lacks are left out."""
    output: str
    """The projection out of the block."""
    fused: int = 1
    """How many projections of one width the output features of each input projection are, one after the other."""
    width: str | Mapping[str, str] = "intermediate_size"
    """What the config calls the width; by the last part of the stack's path where stacks have their own."""


_DENSE = FeedForward(("intermediate.dense",), "output.dense")
_GATED = FeedForward(("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj")
_MLP = FeedForward(("mlp.fc1",), "mlp.fc2")


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
    """Further projections with one block of output features per head, where the model has them."""
    head_size: str = "head_dim"
    """The attribute that holds the size of one head."""
    joint_norm: bool = False
    """Queries and keys are normalised over all heads together: without some heads the others would change."""
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
    thinned_forward: Callable[..., Any] | None = None
    """The stock forward for any number of heads, where the stock one reads the number from the model's config."""
    only_eager_onnx: bool = False
    """The ONNX exporter needs the eager backend."""
    config_heads: tuple[str, ...] = ()
    """What the config calls heads and key/value heads, where it has a head size of its own (`head_dim`)."""
    feed_forward: FeedForward = _DENSE
    depth: Mapping[str, str] = field(default_factory=lambda: {"": "num_hidden_layers"})
    """What the config calls the number of layers, by the last part of the stack's path; '' stands for any stack."""
    keeps_layer: Callable[[Any, int], str | None] = _any_layer
    """`keeps_layer(config, place in the stack)`: why this layer cannot be removed; None if it can."""
    first_layer_only: tuple[str, ...] = ()
    """Modules, by path below a site, that the first layer holds for all; they move to the layer that comes first."""
    first_layer_flag: str = ""
    """The attribute of a site that says that it holds them."""

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

_LLAMA = Layout(
    site="self_attn",
    query="q_proj",
    key="k_proj",
    value="v_proj",
    output="o_proj",
    config_heads=("num_attention_heads", "num_key_value_heads"),
    feed_forward=_GATED,
)

_BART = replace(
    _LLAMA,
    output="out_proj",
    head_counts=("num_heads",),
    config_heads=(),
    feed_forward=FeedForward(("fc1",), "fc2", width={"encoder": "encoder_ffn_dim", "decoder": "decoder_ffn_dim"}),
    depth={"encoder": "encoder_layers", "decoder": "decoder_layers"},
)

_CLIP = replace(_BART, causal=_clip_is_causal, feed_forward=_MLP, depth={"": "num_hidden_layers"})

ARCHITECTURES: dict[str, Layout] = {
    "albert": replace(
        _BERT,
        site="attention",
        output="dense",
        finish=_albert,
        feed_forward=FeedForward(("ffn",), "ffn_output"),
        keeps_layer=_albert_layer,
    ),
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
        keeps_layer=_deberta_layer,
    ),
    "distilbert": Layout(
        site="attention",
        query="q_lin",
        key="k_lin",
        value="v_lin",
        output="out_lin",
        head_size="attention_head_size",
        head_counts=("n_heads",),
        feed_forward=FeedForward(("ffn.lin1",), "ffn.lin2", width="hidden_dim"),
    ),
    "electra": _BERT,
    "gemma3_text": _LLAMA,
    "gpt2": Layout(
        site="attn",
        fused="c_attn",
        output="c_proj",
        head_counts=("num_heads",),
        widths=("split_size",),
        finish=_gpt2,
        feed_forward=FeedForward(("mlp.c_fc",), "mlp.c_proj", width="n_inner"),
        keeps_layer=_gpt2_layer,
    ),
    "llama": _LLAMA,
    "mistral": replace(_LLAMA, window=_config_window),
    "modernbert": Layout(
        site="attn",
        fused="Wqkv",
        output="Wo",
        finish=_modernbert,
        feed_forward=FeedForward(("mlp.Wi",), "mlp.Wo", fused=2),
        keeps_layer=_modernbert_layer,
    ),
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
    "olmo2": replace(_LLAMA, joint_norm=True, config_heads=()),
    "phi3": replace(
        _LLAMA,
        query="",
        key="",
        value="",
        fused="qkv_proj",
        window=_config_window,
        thinned_forward=routed.phi3,
        config_heads=(),
        feed_forward=FeedForward(("mlp.gate_up_proj",), "mlp.down_proj", fused=2),
    ),
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "roberta": _BERT,
    "smollm3": replace(_LLAMA, window=_layer_window),
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
        feed_forward=FeedForward(
            ("DenseReluDense.wi", "DenseReluDense.wi_0", "DenseReluDense.wi_1"), "DenseReluDense.wo", width="d_ff"
        ),
        depth={"encoder": "num_layers", "decoder": "num_decoder_layers"},
        first_layer_only=("relative_attention_bias",),
        first_layer_flag="has_relative_attention_bias",
    ),
    "vit": replace(_LLAMA, site="attention", head_counts=("num_attention_heads",), config_heads=(), feed_forward=_MLP),
    "wav2vec2": replace(
        _BART,
        site="attention",
        finish=_wav2vec2,
        feed_forward=FeedForward(("feed_forward.intermediate_dense",), "feed_forward.output_dense"),
        depth={"": "num_hidden_layers"},
    ),
    "xlm-roberta": _BERT,
}
