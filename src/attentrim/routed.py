"""Forwards in place of stock ones: each repeats the arithmetic of its own, in the same order.

mpnet and deberta-v2 compute attention in place instead of calling transformers' interface; here they leave all that
follows the scores to `attention.explicit`. phi3 reads the number of its heads from the config; here, from the weights.
With nothing asked of a site the result is the stock one to the bit (tested).
"""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from torch import Tensor

from .attention import explicit, of_heads


def mpnet(
    site: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    shape = (*hidden_states.shape[:-1], -1, site.attention_head_size)
    query, key, value = (
        projection(hidden_states).view(shape).transpose(1, 2) for projection in (site.q, site.k, site.v)
    )
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(site.attention_head_size)
    if position_bias is not None:
        kept = getattr(site, "kept_heads", None)
        scores = scores + (position_bias if kept is None else of_heads(position_bias, kept))
    context, weights = explicit(
        site.attentrim,
        scores,
        value,
        attention_mask,
        causal=False,
        dropout=site.dropout.p,
        training=site.training,
    )
    output = site.o(context.reshape(*hidden_states.shape[:-1], -1))
    return (output, weights) if output_attentions else (output,)


def deberta_v2(
    site: Any,
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    heads = site.num_attention_heads
    query_states = hidden_states if query_states is None else query_states
    query = site.transpose_for_scores(site.query_proj(query_states), heads)
    key = site.transpose_for_scores(site.key_proj(hidden_states), heads)
    value = site.transpose_for_scores(site.value_proj(hidden_states), heads)
    factor = 1 + ("c2p" in site.pos_att_type) + ("p2c" in site.pos_att_type)
    scale = torch.sqrt(torch.tensor(query.size(-1), dtype=torch.float) * factor)
    scores = torch.bmm(query, key.transpose(-1, -2) / scale.to(dtype=query.dtype))
    if site.relative_attention:
        assert rel_embeddings is not None
        embeddings = site.pos_dropout(rel_embeddings)
        bias = site.disentangled_attention_bias(query, key, relative_pos, embeddings, factor)
        scores = scores if bias is None else scores + bias
    context, weights = explicit(
        site.attentrim,
        scores.view(-1, heads, *scores.shape[-2:]),
        value.view(-1, heads, *value.shape[-2:]),
        attention_mask.bool(),
        causal=False,
        dropout=site.dropout.p,
        training=site.training,
    )
    return context.flatten(-2), weights if output_attentions else None


def phi3(
    site: Any,
    hidden_states: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    attention_mask: Any,
    past_key_values: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    stock: Any = sys.modules[getattr(site, "stock", type(site)).__module__]
    shape = (*hidden_states.shape[:-1], -1, site.head_dim)
    own = site.o_proj.weight.shape[1]
    shared = own // site.num_key_value_groups
    parts = site.qkv_proj(hidden_states).split((own, shared, shared), -1)
    query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
    query, key = stock.apply_rotary_pos_emb(query, key, *position_embeddings)
    if past_key_values is not None:
        key, value = past_key_values.update(key, value, site.layer_idx)
    attend = ALL_ATTENTION_FUNCTIONS.get_interface(site.config._attn_implementation, stock.eager_attention_forward)
    context, weights = attend(
        site,
        query,
        key,
        value,
        attention_mask,
        dropout=site.attention_dropout if site.training else 0.0,
        scaling=site.scaling,
        sliding_window=getattr(site.config, "sliding_window", None),
        **kwargs,
    )
    return site.o_proj(context.reshape(*hidden_states.shape[:-1], -1).contiguous()), weights
