"""Tiny directories as sentence-transformers writes them, made without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers as tf
import zoo
from safetensors.torch import save_file

from attentrim.sentences.model import embedding_model
from attentrim.sentences.reading import find_modules

WORDS = [
    "the",
    "a",
    "small",
    "large",
    "dog",
    "cat",
    "house",
    "tree",
    "runs",
    "sleeps",
    "sees",
    "stands",
    "old",
    "red",
    "near",
    "under",
    "and",
    "not",
    "very",
    "here",
]
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
TEXTS = ["the small dog runs", "A cat", "the old house stands near the red tree and the large cat sleeps here", "dog"]
FOLDERS = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize", "LSTM": "4_LSTM"}
NEW = {
    "Transformer": "base.modules.transformer",
    "Pooling": "sentence_transformer.modules.pooling",
    "Dense": "base.modules.dense",
    "Normalize": "base.modules.normalize",
}
"""Where newer versions of sentence-transformers have their modules."""


def tokenizer() -> Any:
    words = {word: index for index, word in enumerate([*SPECIAL.values(), "query", ":", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    ends = [(word, words[word]) for word in ("[CLS]", "[SEP]")]
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tf.PreTrainedTokenizerFast(tokenizer_object=made, **SPECIAL)


def directory(
    place: Path,
    *,
    model: str = "bert",
    modules: bool = True,
    types: list[str] | None = None,
    package: str = "sentence_transformers",
    paths: dict[str, str] | None = None,
    pooling: dict[str, Any] | None = None,
    dense: dict[str, Any] | None = None,
    normalize: bool = False,
    lengths: dict[str, Any] | None = None,
    prompt: str = "",
    settings: dict[str, Any] | None = None,
    tokenizer_length: int | None = None,
    new: bool = False,
    layers: int = 2,
    seed: int = 0,
) -> Path:
    """A model with a tokenizer and, with `modules`, what comes behind it; `new`: by the names of newer versions."""
    torch.manual_seed(seed)
    built = tf.AutoModel.from_config(zoo.CONFIGS[model](layers))
    zoo.liven(built, 2.0)
    built.save_pretrained(place)
    reader = tokenizer()
    reader.model_max_length = tokenizer_length or reader.model_max_length
    reader.save_pretrained(place)
    if not modules:
        return place
    types = types or ["Transformer", "Pooling", *["Dense"] * (dense is not None), *["Normalize"] * normalize]
    folders = {**FOLDERS, **(paths or {})}
    home = {kind: f"{package}.{NEW[kind] if new else 'models'}.{kind}" for kind in NEW}
    listed = [
        {"idx": index, "name": str(index), "path": folders[kind], "type": home.get(kind, f"{package}.models.{kind}")}
        for index, kind in enumerate(types)
    ]
    pooling = {"word_embedding_dimension": 24, **({"pooling_mode_mean_tokens": True} if pooling is None else pooling)}
    if new:
        del pooling["word_embedding_dimension"]
    write(place / "modules.json", listed)
    write(place / "1_Pooling" / "config.json", pooling)
    write(
        place / "sentence_bert_config.json",
        {"max_seq_length": 32, "do_lower_case": False} if lengths is None else lengths,
    )
    named = {"prompts": {"query": prompt}, "default_prompt_name": "query"} if prompt else {}
    write(place / "config_sentence_transformers.json", {**named, "similarity_fn_name": "cosine", **(settings or {})})
    if dense is not None:
        write(place / "2_Dense" / "config.json", {"in_features": 24, "out_features": 8, "bias": True, **dense})
        weights = {"linear.weight": torch.randn(8, 24) / 5, "linear.bias": torch.randn(8) / 5}
        save_file(weights, place / "2_Dense" / "model.safetensors")
    return place


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def inputs(texts: list[str] | None = None, prepare: Any = str, **settings: Any) -> dict[str, torch.Tensor]:
    prepared = [prepare(text) for text in texts or TEXTS]
    return dict(tokenizer()(prepared, padding=True, return_tensors="pt", **settings))


def embed(place: Path, texts: list[str] | None = None) -> torch.Tensor:
    """By our own model, read from a directory."""
    modules, model = find_modules(str(place)), embedding_model(str(place)).eval()
    prepare, longest = (modules.prepared, modules.max_length) if modules else (str, None)
    with torch.no_grad():
        batch = inputs(texts, prepare, truncation=longest is not None, max_length=longest)
        return model(**batch).sentence_embedding
