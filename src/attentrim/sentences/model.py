"""A transformers model whose output is the embedding of each text, as its sentence-transformers modules make it."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.utils.generic import ModelOutput

from ..distillation import OF_EMBEDDINGS
from ..distillation.embeddings import between_embeddings
from ..errors import UnsupportedModelError
from ..sites import find_sites, unwrap
from .modules import SentenceModules
from .reading import find_modules
from .writing import default_modules

ENCODERS = {"t5": "T5EncoderModel", "mt5": "MT5EncoderModel", "umt5": "UMT5EncoderModel"}
"""The half of an encoder-decoder that embeds texts."""
SCORES_PAIRS = ("sentence_transformers", "sbert_ce_default_activation_function")
"""Settings that sentence-transformers leaves in the config of a cross-encoder, in newer and in older versions."""
LONGEST = 512
"""Tokens of a text, where neither a model's modules nor its user say how many."""


@dataclass
class EmbeddingOutput(ModelOutput):
    loss: Tensor | None = None
    """Where there are labels: other embeddings of the same texts."""
    sentence_embedding: Tensor | None = None
    """[batch, width]"""
    last_hidden_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def embeds(model: Any) -> bool:
    """Whether a model's output is the embedding of each text."""
    return getattr(unwrap(model), "sentence_modules", None) is not None


def encoder_class(config: Any) -> Any:
    """The bare class, as sentence-transformers chooses it."""
    return getattr(transformers, ENCODERS.get(config.model_type, "AutoModel"))


def embedding_model(name: str, **settings: Any) -> Any:
    """Load a sentence-transformers model from a directory or the hub as a transformers model that embeds texts.

        model = attentrim.embedding_model("sentence-transformers/all-MiniLM-L6-v2")
        model(**tokenizer(texts, padding=True, return_tensors="pt")).sentence_embedding

    It is the bare transformers model, with pooling and any further modules in `forward`. `save_pretrained` writes a
    complete sentence-transformers directory. A model without modules uses the mean over its tokens, normalised.
    `settings` are passed to `from_pretrained`.
    """
    modules = find_modules(name)
    config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    model = encoder_class(config).from_pretrained(name, trust_remote_code=False, **settings)
    check_embeds(model, name, modules is not None)
    positions = getattr(config, "max_position_embeddings", None) or LONGEST
    return as_embedding_model(model, modules or default_modules(config.hidden_size, min(LONGEST, positions)))


def check_embeds(model: Any, name: str, told: bool) -> None:
    """Raise for a model that cannot embed texts, or whose modules do not say how (`told`: it has modules)."""
    kind = model.config.model_type
    accepted = inspect.signature(type(model).forward).parameters
    if model.config.is_encoder_decoder and kind not in ENCODERS:
        raise UnsupportedModelError(f"{name} is an encoder-decoder ({kind}): attentrim embeds texts with encoders.")
    if "input_ids" not in accepted or {"pixel_values", "input_values", "input_features"} & accepted.keys():
        raise UnsupportedModelError(
            f"{name} is a {kind} model, which does not read text alone: it cannot embed texts."
        )
    if not told and any(hasattr(model.config, mark) for mark in SCORES_PAIRS):
        raise UnsupportedModelError(
            f"{name} is a cross-encoder of sentence-transformers: it scores pairs of texts that it reads as one, and "
            "does not embed texts."
        )
    if not told and all(site.causal for site in find_sites(model)):
        raise UnsupportedModelError(
            f"{name} is a decoder ({kind}): its tokens see only those before them, and nothing says how they "
            "become one embedding. Give a sentence-transformers directory whose modules.json does (pooling: "
            "lasttoken, say)."
        )


def as_embedding_model(model: Any, modules: SentenceModules) -> Any:
    """Have a bare model embed texts: its class is changed for one of the same name. The same model."""
    stock: Any = type(model)
    content = {
        "__module__": stock.__module__,
        "__qualname__": stock.__qualname__,
        "__doc__": stock.__doc__,
        "sentence_modules": modules,
        "accepts_loss_kwargs": False,
        "forward": _forward(stock),
        "save_pretrained": _save(stock),
    }
    model.__class__ = types.new_class(stock.__name__, (stock,), exec_body=lambda names: names.update(content))
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)  # nothing reads it
    return model


def _forward(stock: type) -> Any:
    own = inspect.signature(stock.forward)  # type: ignore[attr-defined]

    def forward(self: Any, *args: Any, labels: Tensor | None = None, **kwargs: Any) -> Any:
        given = own.bind_partial(self, *args, **kwargs).arguments
        if "use_cache" in own.parameters:
            kwargs.setdefault("use_cache", False)
        as_tuple = kwargs.pop("return_dict", True) is False
        output = stock.forward(self, *args, return_dict=True, **kwargs)  # type: ignore[attr-defined]
        tokens = output.last_hidden_state
        mask = given.get("attention_mask")
        if mask is None:
            mask = torch.ones(tokens.shape[:-1], dtype=torch.long, device=tokens.device)
        embedding = self.sentence_modules(tokens, mask)
        loss = None
        if labels is not None:
            weights = OF_EMBEDDINGS
            loss = between_embeddings(embedding, labels, weights.embedding, weights.similarity)
        found = EmbeddingOutput(loss, embedding, tokens, output.get("hidden_states"), output.get("attentions"))
        return found.to_tuple() if as_tuple else found

    labels = inspect.Parameter("labels", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = list(own.parameters.values())
    rest = parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    parameters.insert(len(parameters) - 1 if rest else len(parameters), labels)
    forward.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return forward


def _save(stock: Any) -> Any:
    def save_pretrained(self: Any, save_directory: Any, is_main_process: bool = True, **kwargs: Any) -> Any:
        """As the stock model's; the directory is one that sentence-transformers reads."""
        if is_main_process:
            Path(save_directory).mkdir(parents=True, exist_ok=True)
            self.sentence_modules.write(save_directory)
        return stock.save_pretrained(self, save_directory, is_main_process, **kwargs)

    return save_pretrained
