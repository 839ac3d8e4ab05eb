"""Tiny random models of every supported architecture: the test matrix. One line per architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

TEXT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 90}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
GROUPED = {**TEXT, "hidden_size": 32, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
IMAGE = {"image_size": 8, "patch_size": 4}


def _bert_like(model_type: str, layers: int, **more: Any) -> Any:
    return tf.AutoConfig.for_model(model_type, **{**TEXT, "num_hidden_layers": layers}, **NO_DROPOUT, **more)


def _grouped(model_type: str, layers: int, **more: Any) -> Any:
    return tf.AutoConfig.for_model(model_type, **{**GROUPED, "num_hidden_layers": layers}, **more)


def _t5(layers: int) -> dict[str, Any]:
    sizes = {"d_model": 24, "d_kv": 6, "num_heads": 4, "d_ff": 32, "vocab_size": 90}
    return {**sizes, "num_layers": layers, "decoder_start_token_id": 0}


CONFIGS: dict[str, Callable[..., Any]] = {
    "bert": lambda layers=2: _bert_like("bert", layers),
    "roberta": lambda layers=2: _bert_like("roberta", layers, max_position_embeddings=64),
    "xlm-roberta": lambda layers=2: _bert_like("xlm-roberta", layers, max_position_embeddings=64),
    "camembert": lambda layers=2: _bert_like("camembert", layers, max_position_embeddings=64),
    "electra": lambda layers=2: _bert_like("electra", layers, embedding_size=16),
    "distilbert": lambda layers=2: tf.DistilBertConfig(
        dim=24, n_layers=layers, n_heads=4, hidden_dim=32, vocab_size=90
    ),
    "albert": lambda layers=2: _bert_like("albert", layers, embedding_size=16, num_hidden_groups=layers),
    "mpnet": lambda layers=2: _bert_like("mpnet", layers, max_position_embeddings=64),
    "deberta-v2": lambda layers=2: _bert_like(
        "deberta-v2",
        layers,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
        share_att_key=False,
    ),
    "modernbert": lambda layers=2: _bert_like(
        "modernbert", layers, local_attention=6, global_attn_every_n_layers=2, pad_token_id=0, reference_compile=False
    ),
    "gpt2": lambda layers=2: tf.GPT2Config(
        n_embd=24, n_layer=layers, n_head=4, vocab_size=90, n_positions=64, pad_token_id=0
    ),
    "llama": lambda layers=2: _grouped("llama", layers),
    "mistral": lambda layers=2: _grouped("mistral", layers, sliding_window=5, head_dim=8),
    "qwen2": lambda layers=2: _grouped(
        "qwen2", layers, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "qwen3": lambda layers=2: _grouped("qwen3", layers, head_dim=8),
    "gemma3_text": lambda layers=2: _grouped(
        "gemma3_text", layers, head_dim=8, sliding_window=5, sliding_window_pattern=2, query_pre_attn_scalar=8
    ),
    "phi3": lambda layers=2: _grouped("phi3", layers, sliding_window=5, bos_token_id=1, eos_token_id=2),
    "olmo2": lambda layers=2: _grouped("olmo2", layers, eos_token_id=2),
    "smollm3": lambda layers=2: _grouped(
        "smollm3",
        layers,
        no_rope_layer_interval=2,
        use_sliding_window=True,
        sliding_window=5,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "vit": lambda layers=2: _bert_like("vit", layers, **IMAGE),
    "clip": lambda layers=2: tf.CLIPConfig(
        text_config={**TEXT, "num_hidden_layers": layers, "max_position_embeddings": 64, "eos_token_id": 89},
        vision_config={**TEXT, **IMAGE, "num_hidden_layers": layers},
        projection_dim=16,
    ),
    "wav2vec2": lambda layers=2: _bert_like(
        "wav2vec2",
        layers,
        conv_dim=(16, 16),
        conv_kernel=(4, 3),
        conv_stride=(3, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        feat_extract_norm="layer",
        mask_time_prob=0.0,
    ),
    "bart": lambda layers=2: tf.BartConfig(
        d_model=24,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        vocab_size=90,
        max_position_embeddings=64,
        forced_eos_token_id=None,
        init_std=0.08,
    ),
    "t5": lambda layers=2: tf.T5Config(**_t5(layers)),
}

VARIANTS: dict[str, Callable[..., Any]] = {
    "t5-gated": lambda layers=2: tf.T5Config(**{**_t5(layers), "feed_forward_proj": "gated-gelu"}),
    "gemma3-both-ways": lambda layers=2: _grouped(
        "gemma3_text", layers, head_dim=8, sliding_window=6, sliding_window_pattern=2, use_bidirectional_attention=True
    ),
}
"""Other shapes of architectures above, for what depends on them."""

GENERATIVE = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "olmo2", "smollm3"}
SEQ2SEQ = {"bart", "t5", "t5-gated"}
WITHOUT_PADDING = {"vit"}
NO_PORTABLE_UNIFORM = {"mpnet", "t5", "t5-gated"}
SCALES = {"t5": 2.0, "t5-gated": 2.0}
"""Where 4 is too much: T5 does not divide its scores by the root of a head's width. With sharper attention than this,
a difference in the last bit, which differs from processor to processor, can grow to one in the fourth digit."""


def build(name: str, seed: int = 0, attn: str = "eager", scale: float | None = None, layers: int = 2) -> Any:
    """A tiny random model in eval mode whose attention is far from uniform and whose biases are not zero."""
    torch.manual_seed(seed)
    config = {**CONFIGS, **VARIANTS}[name](layers)
    head = (
        tf.AutoModelForSeq2SeqLM
        if name in SEQ2SEQ
        else tf.AutoModelForCausalLM
        if name in GENERATIVE
        else tf.AutoModel
    )
    model = head.from_config(config, attn_implementation=attn).eval()
    liven(model, SCALES.get(name, 4.0) if scale is None else scale)
    return model


@torch.no_grad()
def liven(model: Any, scale: float = 4.0) -> None:
    """Fresh models have zero biases and nearly uniform attention, which would hide mistakes in both."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.normal_(0, 0.2)
        elif parameter.dim() == 2 and "embed" not in name:
            parameter.mul_(scale)


def inputs(
    name: str, padding: str = "none", batch: int = 3, length: int = 11, seed: int = 1
) -> dict[str, torch.Tensor]:
    """Random inputs; with padding, rows have different lengths. Speech and images have their own shapes."""
    generator = torch.Generator().manual_seed(seed)
    result: dict[str, torch.Tensor] = {}
    if name in ("vit", "clip"):
        result["pixel_values"] = torch.randn(batch, 3, 8, 8, generator=generator)
    if name == "wav2vec2":
        result["input_values"] = torch.randn(batch, 6 * length + 4, generator=generator)
        if padding != "none":
            result["attention_mask"] = _padding(padding, batch, 6 * length + 4, 6)
    if name not in ("vit", "wav2vec2"):
        result["input_ids"] = torch.randint(5, 80, (batch, length), generator=generator)
        if name == "clip":
            result["input_ids"][:, -1] = 89
        if padding != "none":
            result["attention_mask"] = _padding(padding, batch, length, 2)
    if name in SEQ2SEQ:
        result["decoder_input_ids"] = torch.randint(5, 80, (batch, length - 2), generator=generator)
    return result


def _padding(side: str, batch: int, length: int, step: int) -> torch.Tensor:
    mask = torch.ones(batch, length, dtype=torch.long)
    for row in range(1, batch):
        mask[row, slice(0, row * step) if side == "left" else slice(length - row * step, length)] = 0
    return mask


def output(name: str, model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The model's main output at valid positions."""
    result = model(**batch)
    if name == "clip":
        # padding at the end hides the end-of-text token: take the hidden states
        text = result.text_model_output.last_hidden_state
        mask = batch.get("attention_mask", torch.ones(text.shape[:2]))
        return torch.cat([text[mask.bool()].flatten(), result.vision_model_output.last_hidden_state.flatten()])
    states = result.logits if "logits" in result else result.last_hidden_state
    if name in SEQ2SEQ:
        return torch.cat([states.flatten(), _valid(result.encoder_last_hidden_state, batch).flatten()])
    if name == "wav2vec2" and "attention_mask" in batch:
        frames = model._get_feature_vector_attention_mask(states.shape[1], batch["attention_mask"])
        return states[frames.bool()]
    return _valid(states, batch) if name != "wav2vec2" else states


def _valid(states: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    mask = batch.get("attention_mask")
    return states if mask is None else states[mask.bool()]
