"""A tokenizer of single characters and tiny decoders for it, for tests on running text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

SPECIAL = ("<pad>", "<s>", "</s>")


def tokenizer(first: bool = False) -> Any:
    """One token per byte. `first`: whether a token is put in front of each text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({token: index for index, token in enumerate([*SPECIAL, *alphabet])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if first:
        made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def decoder(layers: int = 2, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = tf.LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=24,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return tf.LlamaForCausalLM(config).eval()


def save(directory: Path, model: Any = None, first: bool = False) -> Path:
    """A model directory."""
    (decoder() if model is None else model).save_pretrained(directory)
    tokenizer(first).save_pretrained(directory)
    return directory


def write(path: Path, lines: int = 12) -> Path:
    """Some text with blank lines, headings and no line end at its end."""
    rows = [f" = Part {n} = \n \n" if n % 4 == 0 else f"The {n}. line sees  {n * n} cats .\n" for n in range(lines)]
    path.write_text("".join(rows) + "The end")
    return path
